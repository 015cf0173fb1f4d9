"""The agent as a whole: from a bound pod to its status and its end."""

from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from tests.support.agent_world import World, world
from tests.unit.agent.builders import container, document

from grange.agent.container_runtime import ContainerID
from grange.agent.probe_answer import Answer
from grange.agent.probe_types import PROBE_TYPES
from grange.agent.runtimes.fake import Script
from grange.api import timestamps
from grange.api.kinds import CONFIGMAP, EVENT, LEASE, NODE, POD, SECRET
from grange.api.kinds.lease import NODE_LEASES, OLD_STATUS_SYNCED_UNTIL, STATUS_SYNCED_UNTIL
from grange.api.kinds.pod import condition
from grange.api.status import NotFound, ServiceUnavailable, TooLarge
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import exposition
from grange.base.rng import Stream

READINESS: dict[str, Any] = {"readinessProbe": {"tcpSocket": {"port": 80}}}
Tools = tuple[Clock, Stream, Logger]


@pytest.fixture
def tools(clock: Clock, rng: Stream, log: Logger) -> Tools:
    return clock, rng, log


# --- start to end ----------------------------------------------------------------------------------


async def test_a_bound_pod_runs_and_is_ready(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document())
        assert await there.until_ready() < 0.1
        pod = await there.pod()
        assert pod.status.phase == "Running"
        assert pod.status.pod_ip.startswith("127.")
        assert pod.status.host_ip == "127.0.0.1"
        status = await there.main()
        assert (status.ready, status.started, status.restart_count) == (True, True, 0)
        assert status.state.running is not None
        assert status.container_id.startswith("process://")


async def test_grpc_probe_is_asked(tools: Tools) -> None:
    async with world(*tools) as there:
        there.prober.answers["main"] = Answer(ok=False, message="not serving")
        await there.create(document(container(readinessProbe={"grpc": {"port": 8080}})))
        await there.clock.sleep(60)
        assert (await there.main()).ready is False
        assert there.prober.asked


async def test_probe_without_a_known_action_is_not_asked(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(PROBE_TYPES, "grpc")
    async with world(*tools) as there:
        probe = {"grpc": {"port": 8080}}
        probed = container(livenessProbe=probe, readinessProbe=probe, startupProbe=probe)
        await there.create(document(probed))
        assert await there.until_ready() < 0.1
        await there.clock.sleep(600)
        status = await there.main()
        assert (status.ready, status.started, status.restart_count) == (True, True, 0)


async def test_pod_that_needs_an_image_waits_with_remedy(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document({"name": "main", "image": "nginx", "args": ["x"]}))
        await there.clock.sleep(600)
        pod, status = await there.pod(), await there.main()
        waiting = status.state.waiting
        assert waiting is not None
        assert waiting.reason == "ImageRuntimeUnavailable"
        assert "nginx" in waiting.message
        assert "set command to a program of this machine" in waiting.message
        assert (pod.status.phase, status.restart_count) == ("Pending", 0)
        ready = condition(pod, "ContainersReady")
        assert ready is not None
        assert "image runtime" in ready.message
        assert there.machine.starts == []
        reported = await there.client.list(EVENT, "default")
        counts = [item.count for item in reported.items if item.reason == "Failed"]
        assert 1 <= sum(counts) <= 3


async def test_a_pod_of_another_node_is_left_alone(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(nodeName="node-2"))
        await there.clock.sleep(5)
        assert there.machine.starts == []
        assert (await there.pod()).status.phase == "Pending"


async def test_a_pod_bound_later_is_picked_up(tools: Tools) -> None:
    async with world(*tools) as there:
        unbound = document()
        del unbound["spec"]["nodeName"]
        await there.create(unbound)
        await there.clock.sleep(1)
        target = {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
        binding = {"apiVersion": "v1", "kind": "Binding", "target": target}
        binding["metadata"] = {"name": "web"}
        await there.client.post(POD, "web", "default", "binding", binding)
        assert await there.until_ready() < 0.1


@pytest.mark.parametrize(
    ("program", "phase", "code", "reason"),
    [("well", "Succeeded", 0, "Completed"), ("badly", "Failed", 3, "Error")],
)
async def test_a_pod_that_is_not_restarted_ends(
    tools: Tools, program: str, phase: str, code: int, reason: str
) -> None:
    async with world(*tools) as there:
        await there.create(document(container(program=program), restartPolicy="Never"))
        await there.until_phase(phase)
        ended = (await there.main()).state.terminated
        assert ended is not None
        assert (ended.exit_code, ended.reason) == (code, reason)
        await there.clock.sleep(60)
        assert len(there.starts()) == 1


async def test_restarts_back_off_and_are_counted(tools: Tools) -> None:
    """At once, then after 1, 2, 4, 8 seconds: seconds of back-off next to one of running."""
    async with world(*tools) as there:
        began = there.clock.monotonic()
        await there.create(document(container(program="badly")))
        times = []
        for count in range(1, 7):
            await there.until(partial(started, there, count))
            times.append(round(there.clock.monotonic() - began))
        assert times == [0, 1, 3, 6, 11, 20]
        await there.clock.sleep(1.5)
        status = await there.main()
        assert status.restart_count == 5
        assert status.state.waiting is not None
        assert status.state.waiting.reason == "CrashLoopBackOff"
        assert "back-off 16s" in status.state.waiting.message
        assert status.last_state.terminated is not None
        assert status.last_state.terminated.exit_code == 3
        assert (await there.pod()).status.phase == "Running"
        assert "BackOff" in {reason for reason, _ in await there.events()}


async def started(there: World, count: int) -> bool:
    return len(there.starts()) >= count


@pytest.mark.parametrize("probed", [False, True])
async def test_ready_time_is_the_recovery_during_an_outage(tools: Tools, probed: bool) -> None:
    async with world(*tools) as there:
        created = await there.create(document(container(**(READINESS if probed else {}))))
        await there.until_ready()
        before = await since(there)
        await there.clock.sleep(60)
        there.gate = lambda request: (
            ServiceUnavailable("away") if request.method == "PATCH" else None
        )
        if probed:
            there.prober.answers["main"] = Answer(ok=False, message="busy")
            await there.clock.sleep(60)
            there.prober.answers.clear()
        else:
            there.machine.end(ContainerID(created.metadata.uid, "main", 0), there.clock.now(), 1)
        await there.clock.sleep(20)
        assert await since(there) == before
        there.gate = lambda request: None
        await there.clock.sleep(20)
        recovered = timestamps.parse(await since(there))
        assert recovered >= timestamps.parse(before) + timedelta(seconds=60)


async def since(there: World) -> str:
    """When the pod became ready, by its status."""
    found = condition(await there.pod(), "Ready")
    assert found is not None
    assert found.status == "True"
    assert found.last_transition_time
    return found.last_transition_time


async def test_a_long_good_run_forgives_earlier_crashes(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(container(program="long")))
        await there.clock.sleep(900 * 4 + 10)
        assert len(there.starts()) == 5
        assert (await there.main()).state.running is not None


async def test_on_failure_restarts_only_failures(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(container(program="badly"), restartPolicy="OnFailure"))
        await there.until(lambda: started(there, 3))
        there.machine.scripts["badly"] = Script(duration_s=1.0)
        await there.until_phase("Succeeded")
        status = await there.main()
        assert status.restart_count == 3
        assert status.state.terminated is not None
        assert status.state.terminated.exit_code == 0


async def test_a_program_that_is_not_there_is_named(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(container(program="nope"), restartPolicy="Never"))
        await there.until_phase("Failed")
        ended = (await there.main()).state.terminated
        assert ended is not None
        assert (ended.reason, ended.exit_code) == ("StartError", 127)
        assert "nope" in ended.message
        await there.clock.sleep(1)
        assert any("nope" in message for _, message in await there.events())


async def test_init_containers_run_one_after_another_before_the_others(tools: Tools) -> None:
    async with world(*tools) as there:
        inits = [container("one", "well"), container("two", "well")]
        await there.create(document(initContainers=inits))
        await there.clock.sleep(0.5)
        assert (await there.condition("Initialized"))[0] == "False"
        waiting = (await there.main()).state.waiting
        assert waiting is not None
        assert waiting.reason == "PodInitializing"
        assert (await there.pod()).status.phase == "Pending"
        await there.until_ready()
        assert [target.container for target in there.machine.starts] == ["one", "two", "main"]
        assert (await there.condition("Initialized"))[0] == "True"


async def test_a_failed_init_container_fails_a_pod_that_never_restarts(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(
            document(initContainers=[container("init", "badly")], restartPolicy="Never")
        )
        await there.until_phase("Failed")
        assert there.starts() == []


async def test_a_sidecar_starts_first_and_stops_last(tools: Tools) -> None:
    async with world(*tools) as there:
        side = container("side", restartPolicy="Always")
        await there.create(
            document(container(program="well"), initContainers=[side], restartPolicy="Never")
        )
        await there.until_phase("Succeeded")
        assert [target.container for target in there.machine.starts] == ["side", "main"]
        ended = (await there.main(container="side")).state.terminated
        assert ended is not None
        assert ended.signal == 15


async def test_a_pod_past_its_deadline_is_failed(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(activeDeadlineSeconds=30))
        await there.until_ready()
        await there.clock.sleep(29)
        assert (await there.pod()).status.phase == "Running"
        await there.until_phase("Failed")
        assert (await there.pod()).status.reason == "DeadlineExceeded"


# --- deletion ------------------------------------------------------------------------------------


async def test_deletion_stops_the_programs_and_then_the_object_goes(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(container(program="slow-to-stop")))
        await there.until_ready()
        await there.client.delete(POD, "web", "default")
        await there.clock.sleep(1)
        assert (await there.condition("Ready"))[0] == "False"
        assert round(await there.until_gone()) == 4
        assert there.machine.pods == {}


async def test_program_that_ignores_sigterm_is_killed_after_grace(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(
            document(container(program="stubborn"), terminationGracePeriodSeconds=12)
        )
        await there.until_ready()
        await there.client.delete(POD, "web", "default")
        assert round(await there.until_gone()) == 12


async def test_a_shorter_grace_given_later_counts(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(container(program="stubborn")))
        await there.until_ready()
        await there.client.delete(POD, "web", "default")
        await there.clock.sleep(3)
        await there.client.delete(POD, "web", "default", grace_period_s=5)
        assert round(await there.until_gone()) == 2


async def test_a_pod_deleted_by_force_is_stopped_too(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(container(program="stubborn")))
        await there.until_ready()
        await there.client.delete(POD, "web", "default", grace_period_s=0)
        assert not await there.exists()
        await there.clock.sleep(3)
        assert there.machine.pods == {}


async def test_a_pod_of_the_same_name_is_another_pod(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document())
        await there.until_ready()
        first = (await there.pod()).metadata.uid
        await there.client.delete(POD, "web", "default", grace_period_s=0)
        await there.create(document())
        await there.until_ready()
        await there.clock.sleep(5)
        assert first not in there.machine.pods
        assert list(there.machine.pods) == [(await there.pod()).metadata.uid]


async def test_a_finished_pod_can_be_deleted(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(container(program="well"), restartPolicy="Never"))
        await there.until_phase("Succeeded")
        await there.client.delete(POD, "web", "default")
        await there.until_gone()
        await there.clock.sleep(1)
        assert there.machine.pods == {}


# --- probes --------------------------------------------------------------------------------------


async def test_a_ready_pod_is_seen_within_a_tenth_of_a_second(tools: Tools) -> None:
    async with world(*tools) as there:
        there.prober.answers["main"] = Answer(ok=False, message="not yet")
        await there.create(document(container(**READINESS)))
        await there.clock.sleep(0.35)
        assert (await there.condition("Ready"))[0] == "False"
        there.prober.answers.clear()
        assert await there.until_ready() < 0.2
        asked = len(there.prober.asked)
        await there.clock.sleep(60)
        assert len(there.prober.asked) - asked == 6  # the usual period from here on


async def test_failing_probe_is_reported_with_few_events(
    tools: Tools,
) -> None:
    async with world(*tools) as there:
        there.prober.answers["main"] = Answer(ok=False, message="connection refused at 1.2.3.4:80")
        await there.create(document(container(**READINESS)))
        await there.clock.sleep(600)
        status, reason, message = await there.condition("Ready")
        assert (status, reason) == ("False", "ContainersNotReady")
        assert "unready status: [main]" in message
        assert "Readiness probe failed: connection refused at 1.2.3.4:80" in message
        assert (await there.main()).state.running is not None
        unhealthy = [message for reason, message in await there.events() if reason == "Unhealthy"]
        assert unhealthy == ["Readiness probe failed: connection refused at 1.2.3.4:80"]
        assert len([item for item in there.writes if item[1].endswith("/web/status")]) <= 3
        assert len(there.prober.asked) < 90


async def test_a_failing_liveness_probe_restarts_the_container(tools: Tools) -> None:
    async with world(*tools) as there:
        probe = {"tcpSocket": {"port": 80}, "periodSeconds": 2, "failureThreshold": 3}
        await there.create(document(container(livenessProbe=probe)))
        await there.until_ready()
        await there.clock.sleep(10)
        there.prober.answers["main"] = Answer(ok=False, message="stuck")
        await there.until(lambda: started(there, 2), limit_s=10)
        there.prober.answers.clear()
        await there.until_ready()
        assert (await there.main()).restart_count == 1
        await there.clock.sleep(60)
        assert len(there.starts()) == 2
        reasons = [reason for reason, _ in await there.events()]
        assert {"Unhealthy", "Killing"} <= set(reasons)


async def test_probe_may_have_a_grace_of_its_own(tools: Tools) -> None:
    async with world(*tools) as there:
        probe = {"tcpSocket": {"port": 80}, "periodSeconds": 1, "failureThreshold": 1}
        liveness = {**probe, "terminationGracePeriodSeconds": 4}
        await there.create(document(container(program="stubborn", livenessProbe=liveness)))
        await there.until_ready()
        there.prober.answers["main"] = Answer(ok=False, message="stuck")
        assert 4 <= await there.until(lambda: started(there, 2)) < 5.1
        there.prober.answers.clear()
        await there.until_ready()
        await there.client.delete(POD, "web", "default")
        assert round(await there.until_gone()) == 30


async def test_a_startup_probe_holds_the_others_back(tools: Tools) -> None:
    async with world(*tools) as there:
        there.prober.answers["main"] = Answer(ok=False, message="starting")
        startup = {"tcpSocket": {"port": 80}, "periodSeconds": 1, "failureThreshold": 30}
        liveness = {"tcpSocket": {"port": 80}, "periodSeconds": 1, "failureThreshold": 1}
        await there.create(document(container(startupProbe=startup, livenessProbe=liveness)))
        await there.clock.sleep(20)
        assert len(there.starts()) == 1
        assert (await there.main()).started is False
        there.prober.answers.clear()
        await there.until_ready()
        assert (await there.main()).started is True


async def test_a_startup_probe_gives_the_time_that_it_promises(tools: Tools) -> None:
    """Thirty failures a second apart, although the first ones come in quicker succession."""
    async with world(*tools) as there:
        there.prober.answers["main"] = Answer(ok=False, message="starting")
        startup = {"tcpSocket": {"port": 80}, "periodSeconds": 1, "failureThreshold": 30}
        await there.create(document(container(startupProbe=startup)))
        took = await there.until(lambda: started(there, 2))
        assert 28 <= took <= 33


# --- what containers need ------------------------------------------------------------------------


async def test_a_missing_config_map_is_named_and_waited_for(tools: Tools) -> None:
    async with world(*tools) as there:
        env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "cfg", "key": "a"}}}]
        await there.create(document(container(env=env)))
        await there.clock.sleep(5)
        waiting = (await there.main()).state.waiting
        assert waiting is not None
        assert waiting.reason == "CreateContainerConfigError"
        assert 'ConfigMap "cfg"' in waiting.message
        assert (await there.pod()).status.phase == "Pending"
        await there.client.create(
            CONFIGMAP, {"metadata": {"name": "cfg"}, "data": {"a": "1"}}, "default"
        )
        await there.until_ready()
        assert there.machine.environments[there.starts()[0]]["A"] == "1"
        assert (await there.main()).restart_count == 0


async def test_secrets_and_addresses_reach_the_environment(tools: Tools) -> None:
    async with world(*tools) as there:
        secret = {"metadata": {"name": "s"}, "stringData": {"token": "s"}}
        await there.client.create(SECRET, secret, "default")
        env = [{"name": "URL", "value": "http://$(POD_IP)/$(TOKEN)"}]
        env_from = [{"prefix": "", "secretRef": {"name": "s"}}]
        await there.create(document(container(env=env, envFrom=env_from)))
        await there.until_ready()
        given = there.machine.environments[there.starts()[0]]
        assert given["token"] == "s"  # noqa: S105  not a real one
        assert given["POD_IP"] == (await there.pod()).status.pod_ip
        assert given["NODE_NAME"] == "node-1"
        assert given["URL"].endswith("/$(TOKEN)")


async def test_a_runtime_that_cannot_is_asked_again(tools: Tools) -> None:
    async with world(*tools) as there:
        there.machine.refusal = "no space left on device"
        await there.create(document())
        await there.clock.sleep(3)
        waiting = (await there.main()).state.waiting
        assert waiting is not None
        assert waiting.reason == "CreateContainerError"
        assert "no space left" in waiting.message
        there.machine.refusal = ""
        await there.until_ready()


async def test_a_pod_that_does_not_fit_is_refused(tools: Tools) -> None:
    async with world(*tools) as there:
        big = container(resources={"requests": {"cpu": "3"}})
        await there.create(document(big))
        await there.until_ready()
        await there.create(document(big, name="other"))
        await there.until_phase("Failed", "other")
        other = await there.pod("other")
        assert other.status.reason == "OutOfcpu"
        assert "requested: 3000, used: 3000, capacity: 4000" in other.status.message
        assert (await there.condition("Ready"))[0] == "True"


# --- the node --------------------------------------------------------------------------------------


async def test_the_node_is_registered_and_keeps_renewing_its_lease(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.clock.sleep(1)
        node = await there.node()
        assert node.status.capacity["cpu"] == "4"
        assert node.metadata.labels["kubernetes.io/hostname"] == "node-1"
        assert {item.type: item.status for item in node.status.conditions}["Ready"] == "True"
        before = (await there.client.get(LEASE, "node-1", NODE_LEASES)).spec.renew_time
        there.requests.clear()
        await there.clock.sleep(100)
        after = (await there.client.get(LEASE, "node-1", NODE_LEASES)).spec.renew_time
        assert after != before
        assert len(there.writes) == 10


async def test_a_node_that_is_marked_unknown_reports_its_status(tools: Tools) -> None:
    """A server that lost sight of it learns it at the next heartbeat, though no heartbeat failed."""
    async with world(*tools) as there:
        await there.clock.sleep(35)
        unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        await there.client.patch(
            NODE,
            "node-1",
            patch={"status": {"conditions": [unknown]}},
            type="strategic",
            subresource="status",
        )
        await there.clock.sleep(11)
        node = await there.node()
        assert {item.type: item.status for item in node.status.conditions}["Ready"] == "True"


async def test_a_heartbeat_is_one_request(tools: Tools) -> None:
    """The Node is watched; it is not read each time."""
    async with world(*tools) as there:
        await there.clock.sleep(35)
        asked: list[str] = []
        there.gate = lambda request: asked.append(f"{request.method} {request.path}")
        await there.clock.sleep(100)
        lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-1"
        assert asked == [f"PATCH {lease}"] * 10


async def test_first_heartbeat_after_an_outage_reads_the_node(tools: Tools) -> None:
    """The watch may bring late what happened meanwhile."""
    async with world(*tools) as there:
        await there.clock.sleep(35)
        there.held_watches.add("/api/v1/nodes")
        there.gate = lambda request: ServiceUnavailable("away")
        await there.clock.sleep(60)
        unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        patch = {"status": {"conditions": [unknown]}}
        await there.client.patch(
            NODE, "node-1", patch=patch, type="strategic", subresource="status"
        )
        there.gate = lambda request: None
        await there.clock.sleep(11)
        node = await there.node()
        assert {item.type: item.status for item in node.status.conditions}["Ready"] == "True"


async def test_a_resource_that_a_user_added_causes_no_writes(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.clock.sleep(35)
        added = {"status": {"allocatable": {"example.com/dongle": "4"}}}
        await there.client.patch(NODE, "node-1", patch=added, subresource="status")
        there.requests.clear()
        await there.clock.sleep(100)
        assert {path for _, path in there.writes} == {
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-1"
        }


async def test_lease_records_until_when_pod_status_is_written(tools: Tools) -> None:
    """A heartbeat that gets through before them covers nothing newer."""
    async with world(*tools) as there:
        await there.create(document())
        await there.until_ready()
        await there.clock.sleep(30)
        there.gate = lambda request: (
            ServiceUnavailable("away") if "/pods/" in request.path else None
        )
        there.machine.end(there.starts()[0], there.clock.now(), 1)
        broke = there.clock.now()
        await there.clock.sleep(60)
        renewed, synced = await lease_times(there)
        assert there.clock.now() - renewed < timedelta(seconds=11), "the node is not silenced"
        assert synced <= broke
        there.gate = lambda request: None
        await there.clock.sleep(25)
        renewed, synced = await lease_times(there)
        assert synced == renewed > broke
        assert (await there.main()).restart_count == 1


async def test_pod_that_the_api_refuses_holds_back_no_others(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document())
        await there.until_ready()
        there.gate = lambda request: TooLarge("too large") if "/pods/" in request.path else None
        there.machine.end(there.starts()[0], there.clock.now(), 1)
        await there.clock.sleep(30)
        renewed, synced = await lease_times(there)
        assert synced == renewed


async def lease_times(there: World) -> tuple[datetime, datetime]:
    """When it was renewed, and until when the status of all pods was written."""
    lease = await there.client.get(LEASE, "node-1", NODE_LEASES)
    synced = lease.metadata.annotations[STATUS_SYNCED_UNTIL]
    return timestamps.parse(lease.spec.renew_time or ""), timestamps.parse(synced)


async def test_agent_renames_the_annotation_of_an_old_agent(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.clock.sleep(1)
        stored = {"metadata": {"annotations": {OLD_STATUS_SYNCED_UNTIL: "2020-01-01T00:00:00Z"}}}
        await there.client.patch(LEASE, "node-1", NODE_LEASES, patch=stored)
        await there.clock.sleep(20)
        lease = await there.client.get(LEASE, "node-1", NODE_LEASES)
        assert set(lease.metadata.annotations) == {STATUS_SYNCED_UNTIL}


async def test_a_deleted_node_registers_again(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.clock.sleep(1)
        await there.client.delete(NODE, "node-1")
        await there.clock.sleep(11)
        assert (await there.node()).metadata.name == "node-1"


async def test_a_quiet_pod_causes_no_writes(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(container(**READINESS)))
        await there.until_ready()
        there.requests.clear()
        await there.clock.sleep(250)
        assert [path for _, path in there.writes if "/pods/" in path] == []


# --- crashes of the agent --------------------------------------------------------------------------


async def test_the_next_agent_takes_running_pods_over(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(container(**READINESS)))
        await there.until_ready()
        there.machine.end(there.starts()[0], there.clock.now(), 1)
        await there.until(lambda: started(there, 2))
        await there.until_ready()
        address = (await there.pod()).status.pod_ip
        there.crash_agent()
        await there.clock.sleep(5)
        there.start_agent()
        await there.clock.sleep(5)
        assert len(there.starts()) == 2
        assert (await there.main()).restart_count == 1
        assert (await there.condition("Ready"))[0] == "True"
        assert (await there.pod()).status.pod_ip == address
        there.machine.end(there.starts()[1], there.clock.now(), 1)
        await there.until(lambda: started(there, 3))
        assert there.starts()[2].attempt == 2


async def test_what_ended_while_no_agent_looked_is_reported(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(container(program="badly"), restartPolicy="Never"))
        await there.until_ready()
        there.crash_agent()
        await there.clock.sleep(5)
        there.start_agent()
        await there.until_phase("Failed")
        assert len(there.starts()) == 1


async def test_a_pod_deleted_while_no_agent_looked_is_ended(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(container(program="stubborn")))
        await there.until_ready()
        there.crash_agent()
        await there.client.delete(POD, "web", "default", grace_period_s=0)
        there.start_agent()
        await there.clock.sleep(5)
        assert there.machine.pods == {}


async def test_a_worker_that_fails_is_recreated_and_doubles_nothing(tools: Tools) -> None:
    """A bug in one pod's handling costs a log line, not the node and not the pod."""
    async with world(*tools) as there:
        await there.create(document(container(**READINESS)))
        await there.create(document(name="other"))
        await there.until_ready()
        there.prober.failure = ZeroDivisionError("a bug")
        await there.clock.sleep(20)
        there.prober.failure = None
        await there.clock.sleep(20)
        assert len(there.machine.starts) == 2
        assert (await there.condition("Ready"))[0] == "True"
        assert (await there.main()).restart_count == 0
        await there.client.delete(POD, "web", "default")
        await there.until_gone()


async def test_what_happens_is_counted(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(container(**READINESS, program="badly")))
        await there.clock.sleep(4)
        found = exposition(there.registry).decode()
        assert 'grange_agent_container_starts_total{outcome="started"} 3.0' in found
        assert 'grange_agent_container_ends_total{reason="Error"} 2.0' in found
        assert 'grange_agent_probes_total{kind="Readiness",outcome="ok"}' in found
        assert 'grange_agent_status_writes_total{outcome="written"}' in found


async def test_a_lost_container_is_restarted_by_policy(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document())
        await there.until_ready()
        there.machine.lose(there.starts()[0], there.clock.now())
        await there.until(lambda: started(there, 2))
        await there.until_ready()
        last = (await there.main()).last_state.terminated
        assert last is not None
        assert (last.reason, last.exit_code) == ("ContainerStatusUnknown", 137)


async def test_forgotten_pod_is_not_run_twice_when_forbidden(
    tools: Tools,
) -> None:
    """A machine that lost its disk: what ran with Never has failed, and is not run again."""
    async with world(*tools) as there:
        await there.create(document(restartPolicy="Never"))
        await there.until_ready()
        there.crash_agent()
        for uid in list(there.machine.pods):
            await there.runtime.remove(uid)
        there.start_agent()
        await there.until_phase("Failed")
        assert len(there.starts()) == 1
        with pytest.raises(NotFound):
            await there.client.get(POD, "absent", "default")


async def test_silent_supervisor_is_reported_in_an_event(tools: Tools) -> None:
    """The next agent takes the container for running and reports what it does not know."""
    async with world(*tools) as there:
        await there.create(document())
        await there.until_ready()
        await there.clock.sleep(1)
        there.crash_agent()
        there.machine.silence(there.starts()[0], "the supervisor does not answer")
        there.start_agent()
        await there.clock.sleep(5)
        assert (await there.condition("Ready"))[0] == "True"
        assert len(there.starts()) == 1
        reported = ("SupervisorUnresponsive", "container main: the supervisor does not answer")
        assert reported in await there.events()


async def test_probe_that_cannot_be_asked_restarts_nothing(tools: Tools) -> None:
    async with world(*tools) as there:
        probe = {"tcpSocket": {"port": 80}, "periodSeconds": 1, "failureThreshold": 1}
        await there.create(document(container(livenessProbe=probe, readinessProbe=probe)))
        await there.until_ready()
        there.prober.answers["main"] = Answer(
            ok=None, message="the agent cannot ask: no descriptor"
        )
        await there.clock.sleep(60)
        assert len(there.starts()) == 1
        assert (await there.condition("Ready"))[0] == "True"
        reported = [message for reason, message in await there.events() if reason == "ProbeUnknown"]
        assert sorted(reported) == [
            f"{kind} probe could not be asked: the agent cannot ask: no descriptor"
            for kind in ("Liveness", "Readiness")
        ]


async def test_pod_is_ready_once_its_gate_is_open(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(readinessGates=[{"conditionType": "example.com/gate"}]))
        await there.clock.sleep(5)
        assert (await there.condition("ContainersReady"))[0] == "True"
        assert (await there.condition("Ready"))[:2] == ("False", "ReadinessGatesNotReady")
        for status in ("True", "False"):
            gate = {"type": "example.com/gate", "status": status}
            await there.client.patch(
                POD,
                "web",
                "default",
                patch={"status": {"conditions": [gate]}},
                type="strategic",
                subresource="status",
            )
            await there.clock.sleep(0.1)
            assert (await there.condition("Ready"))[0] == status
