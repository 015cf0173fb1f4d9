"""When a wait for readiness ends: after the rollout has happened, or because it cannot."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.controller_world import World, world
from tests.unit.cli.sessions import opened, session
from tests.unit.controllers import builders

from grange.api import timestamps
from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import NAME_LABEL
from grange.api.meta import Document
from grange.api.status import Forbidden
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli import failure_causes, readiness, waiting
from grange.cli.rollout_status import rollout_status, settle_s
from grange.controllers.replication.controller import ReplicationService

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def stamp(ago_s: float) -> str:
    return timestamps.rfc3339(NOW - timedelta(seconds=ago_s))


def running(ago_s: float, *, name: str = "main") -> Document:
    return {"name": name, "ready": True, "state": {"running": {"startedAt": stamp(ago_s)}}}


def crashed(restarts: int, **ended: Any) -> Document:
    last = {"exitCode": 3, "startedAt": stamp(2), "finishedAt": stamp(1), **ended}
    return {
        "name": "main",
        "restartCount": restarts,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 4s"}},
        "lastState": {"terminated": last},
    }


def pod(name: str, *containers: Document, template: str = "new", **container: Any) -> Document:
    is_ready = all(item.get("ready") for item in containers)
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"grange.dev/template-hash": template},
            "ownerReferences": [{"uid": "u", "controller": True}],
        },
        "spec": {"containers": [{"name": "main", **container}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": str(is_ready)}],
            "containerStatuses": list(containers),
        },
    }


def controller(have: int = 2, *, phase: str = "Complete", **status: Any) -> Document:
    counts = ("replicas", "readyReplicas", "updatedReplicas", "availableReplicas")
    return {
        "kind": "ReplicationController",
        "metadata": {"name": "web", "uid": "u", "generation": 2},
        "spec": {"replicas": 2},
        "status": {
            "observedGeneration": 2,
            "rollout": {"phase": phase, "templateHash": "new", "stableHash": "old"},
            **dict.fromkeys(counts, have),
            **status,
        },
    }


OLD = [pod("a", running(60)), pod("b", running(60))]


def test_rollout_ends_when_replicas_are_updated_and_available() -> None:
    assert rollout_status(controller(), OLD, NOW).done
    for changed in (
        {"observedGeneration": 1},
        {"updatedReplicas": 1},
        {"availableReplicas": 1},
        {"replicas": 3},
        {"readyReplicas": 1},
        {"rollout": {"phase": "Progressing"}},
    ):
        state = rollout_status(controller(**changed), OLD, NOW)
        assert (state.done, state.failed) == (False, False), changed
    assert rollout_status(controller(updatedReplicas=1), OLD, NOW).text == (
        "2/2 ready, 1 of 2 updated"
    )
    on_delete = controller(updatedReplicas=0, rollout={"phase": "Waiting"})
    on_delete["spec"]["rollout"] = {"type": "OnDelete"}
    assert rollout_status(on_delete, OLD, NOW).done, "nothing is replaced by itself"


def test_pods_that_are_not_seen_yet_are_waited_for() -> None:
    assert not rollout_status(controller(), OLD[:1], NOW).done
    assert not rollout_status(controller(), [], NOW).done
    leaving = pod("b", running(60))
    leaving["metadata"]["deletionTimestamp"] = stamp(1)
    assert not rollout_status(controller(), [OLD[0], leaving], NOW).done
    assert rollout_status(controller(), None, NOW).done, "they may not be listed"
    assert rollout_status(controller(0) | {"spec": {"replicas": 0}}, [], NOW).done


def test_container_without_a_probe_counts_after_it_has_run() -> None:
    young = [OLD[0], pod("b", running(1))]
    state = rollout_status(controller(), young, NOW)
    assert (state.done, state.failed, state.again_s) == (False, False, 2.0)
    assert "running for less than 2 s" in state.text
    assert rollout_status(controller(), young, NOW + timedelta(seconds=2)).done
    probed = pod("b", running(1), readinessProbe={"exec": {"command": ["true"]}})
    assert rollout_status(controller(), [OLD[0], probed], NOW).done
    assert not rollout_status(young[1], (), NOW).done
    assert rollout_status(probed, (), NOW).done


def test_a_start_by_another_clock_is_not_waited_for() -> None:
    assert settle_s(pod("a", running(-600)), NOW) == 0.0
    assert settle_s(pod("a", running(-1)), NOW) == 4.0
    micro = running(1)
    micro["state"]["running"]["startedAt"] = timestamps.rfc3339_micro(NOW - timedelta(seconds=1))
    assert settle_s(pod("a", micro), NOW) == 1.0
    assert settle_s(pod("a", {"name": "main", "state": {"running": {}}}), NOW) == 0.0


@pytest.mark.parametrize(
    ("restarts", "ended", "final"),
    [
        (4, {}, True),
        (3, {}, False),
        (40, {"startedAt": stamp(1000)}, False),
        (0, {"reason": "StartError", "message": "no program x"}, False),
        (1, {"reason": "StartError", "message": "no program x"}, True),
    ],
)
def test_crash_loop_ends_the_wait(restarts: int, ended: Document, final: bool) -> None:
    looping = pod("c", crashed(restarts, **ended))
    short = controller(1, replicas=2)
    state = rollout_status(short, [OLD[0], looping], NOW)
    assert (state.done, state.failed) == (False, final)
    assert rollout_status(looping, (), NOW).failed is final
    if final:
        cause = ended.get("message", "ended with exit code 3; see its log")
        assert state.text == f"1/2 ready, 1 of 2 updated; pod/c: main: {cause}"
    former = pod("c", crashed(restarts, **ended), template="old")
    assert not rollout_status(short, [OLD[0], former], NOW).failed, "it is being replaced"
    short["metadata"]["generation"] = 3
    assert not rollout_status(short, [OLD[0], looping], NOW).failed, "of the spec before"


IN_USE = "address already in use: port 80 is held by pod default/{}, which listens on 0.0.0.0"


@pytest.mark.parametrize(("restarts", "final"), [(0, False), (1, False), (2, True)])
def test_address_in_use_ends_the_wait_after_two_restarts(restarts: int, final: bool) -> None:
    message = IN_USE.format("a")
    looping = pod("c", crashed(restarts, message=f"words\n{message}"))
    state = rollout_status(controller(1), [OLD[0], looping], NOW)
    assert (state.failed, message in state.text) == (final, True)
    assert rollout_status(looping, (), NOW).failed is final


def test_address_held_by_a_terminating_pod_is_waited_for() -> None:
    holder = pod("a", running(60), template="old")
    holder["metadata"] |= {"namespace": "default", "deletionTimestamp": stamp(1)}
    pods = [holder, pod("c", crashed(3, message=IN_USE.format("a")))]
    state = rollout_status(controller(0), pods, NOW)
    assert (state.failed, "held by pod default/a" in state.text) == (False, True)
    pods[1] = pod("c", crashed(3, message=IN_USE.format("ab")))
    assert rollout_status(controller(0), pods, NOW).failed


def test_cause_is_shown_before_the_wait_ends() -> None:
    short = controller(1, replicas=2)
    state = rollout_status(short, [OLD[0], pod("c", crashed(0))], NOW)
    assert not state.failed
    cause = "pod/c: main: ended with exit code 3; see its log"
    assert state.text == f"1/2 ready, 1 of 2 updated; {cause}"
    worse = pod("d", crashed(1, reason="StartError", message="no program x"))
    state = rollout_status(short, [OLD[0], pod("c", crashed(0)), worse], NOW)
    assert state.failed
    assert state.text.endswith("; pod/d: main: no program x")


def test_cause_of_a_restart_is_shown_until_it_has_run() -> None:
    again = running(1) | {"restartCount": 2, "lastState": crashed(2)["lastState"]}
    pods = [OLD[0], pod("b", again)]
    state = rollout_status(controller(), pods, NOW)
    assert (state.done, state.failed) == (False, False)
    assert state.text.startswith("2/2 ready, running for less than 2 s; pod/b: main: ended with")
    assert "pod/b: main: ended with" in rollout_status(controller(1), pods, NOW).text
    assert rollout_status(controller(), pods, NOW + timedelta(seconds=5)).text == "2/2 ready"


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing"])
def test_pod_that_starts_is_no_cause(reason: str) -> None:
    starting = pod("c", {"name": "main", "state": {"waiting": {"reason": reason}}})
    state = rollout_status(controller(1), [OLD[0], starting], NOW)
    assert state.text == "1/2 ready, 1 of 2 updated"


@pytest.mark.parametrize(
    ("reason", "final"),
    [
        ("ImageRuntimeUnavailable", True),
        ("InvalidImageName", True),
        ("CreateContainerConfigError", False),
        ("ContainerCreating", False),
    ],
)
def test_image_that_cannot_run_ends_the_wait(reason: str, final: bool) -> None:
    waiting = {"name": "main", "state": {"waiting": {"reason": reason, "message": "why"}}}
    state = rollout_status(controller(1), [OLD[0], pod("c", waiting)], NOW)
    assert (state.done, state.failed) == (False, final)


@pytest.mark.parametrize("phase", ["Failed", "RolledBack"])
def test_failed_rollout_ends_the_wait_with_its_cause(phase: str) -> None:
    failed = controller(rollout={"phase": phase, "message": "revision 2 got no further"})
    state = rollout_status(failed, OLD, NOW)
    assert (state.done, state.failed) == (False, True)
    assert f"{phase}: revision 2 got no further" in state.text


@pytest.mark.parametrize(
    ("document", "done", "failed"),
    [
        ({"kind": "Deployment", "status": {"observedGeneration": 1}}, False, False),
        (
            {"kind": "Deployment", "status": {"updatedReplicas": 1, "availableReplicas": 2}},
            False,
            False,
        ),
        (
            {
                "kind": "Deployment",
                "status": {"replicas": 3, "updatedReplicas": 2, "availableReplicas": 2},
            },
            False,
            False,
        ),
        (
            {
                "kind": "StatefulSet",
                "status": {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2},
            },
            True,
            False,
        ),
        ({"kind": "ReplicaSet", "status": {"replicas": 2, "availableReplicas": 2}}, True, False),
        (
            {
                "kind": "DaemonSet",
                "status": {
                    "desiredNumberScheduled": 1,
                    "updatedNumberScheduled": 1,
                    "numberAvailable": 1,
                },
            },
            True,
            False,
        ),
        (
            {
                "kind": "Deployment",
                "status": {
                    "conditions": [{"type": "Progressing", "reason": "ProgressDeadlineExceeded"}]
                },
            },
            False,
            True,
        ),
        ({"kind": "Job", "status": {}}, False, False),
        (
            {"kind": "Job", "status": {"conditions": [{"type": "Complete", "status": "True"}]}},
            True,
            False,
        ),
        (
            {"kind": "Job", "status": {"conditions": [{"type": "Failed", "status": "True"}]}},
            False,
            True,
        ),
    ],
)
def test_workloads_of_kubernetes_are_waited_for_too(
    document: Document, done: bool, failed: bool
) -> None:
    found = {"metadata": {"generation": 2}, "spec": {"replicas": 2}, **document}
    found["status"] = {"observedGeneration": 2, **document["status"]}
    state = rollout_status(found, None, NOW)
    assert (state.done, state.failed) == (done, failed)


def test_cause_is_what_happened_last() -> None:
    signalled = pod("a", crashed(1, exitCode=137, signal=9))
    assert str(failure_causes.of_pod(signalled)) == "main: ended by SIGKILL; see its log"
    unconfigured = pod("a", crashed(1))
    unconfigured["status"]["containerStatuses"][0]["state"] = {
        "waiting": {"reason": "CreateContainerConfigError", "message": "no configmap web"}
    }
    assert str(failure_causes.of_pod(unconfigured)) == "main: no configmap web"
    probing = pod("a", {**crashed(1), "state": {"running": {"startedAt": stamp(0)}}})
    message = "containers with unready status: [main]; main: readiness probe failed: HTTP 503"
    ready = {"type": "Ready", "status": "False", "message": message}
    probing["status"]["conditions"] = [{**ready, "lastTransitionTime": stamp(1)}]
    assert str(failure_causes.of_pod(probing)) == "main: ended with exit code 3; see its log"
    probing["status"]["conditions"] = [{**ready, "lastTransitionTime": stamp(0)}]
    assert str(failure_causes.of_pod(probing)) == "main: readiness probe failed: HTTP 503", (
        "it was ready after that run"
    )
    assert failure_causes.of_pod(OLD[0]) is None
    failed = {"phase": "Failed", "containerStatuses": [{"name": "c", "state": {}}]}
    failed["containerStatuses"] = [{"name": "c", "state": {"terminated": {"exitCode": 3}}}]
    state = readiness.ready({"kind": "Pod", "status": failed})
    assert state.text == "failed: c: ended with exit code 3; see its log"


def test_cause_of_a_kill_for_memory_gives_the_limit() -> None:
    killed = pod("a", crashed(1, exitCode=137, signal=9, reason="OOMKilled"))
    assert str(failure_causes.of_pod(killed)) == (
        "main: OOMKilled: memory ran out, and the container has no limit"
    )
    limits = {"limits": {"memory": "50Mi"}}
    killed["spec"] = {"containers": [{"name": "main", "resources": limits}]}
    expected = "main: OOMKilled: over its memory limit of 50Mi; raise resources.limits.memory"
    assert str(failure_causes.of_pod(killed)) == expected
    status = killed["status"]["containerStatuses"][0]
    status["state"] = {"running": {"startedAt": stamp(0)}}
    restart = failure_causes.of_restart(killed, NOW)
    assert restart is not None
    assert str(restart[0]) == expected


class Crashing(World):
    """Pods of a template with the label ``bad`` crash on their nodes."""

    async def set_phase(self, pod: Any, phase: str) -> None:
        if pod.metadata.labels.get("bad") != "true":
            await super().set_phase(pod, phase)
            return
        ended = {"exitCode": 127, "reason": "StartError", "message": "no program nowhere"}
        status = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": self._now()}],
            "containerStatuses": [
                {
                    "name": "web",
                    "image": "",
                    "imageID": "",
                    "ready": False,
                    "restartCount": 2,
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": ended},
                }
            ],
        }
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        await self.client.patch(
            POD, pod.metadata.name, "default", patch=patch, subresource="status"
        )


WEB = [(REPLICATIONCONTROLLER, "web", "default")]


async def test_update_of_a_healthy_service_to_a_missing_program_fails(
    clock: Clock, rng: Stream, log: Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(clock, rng, log, kind=Crashing) as there:
        for name in ("a", "b", "c", "d"):
            await there.add_node(name)
        await there.add_controller(replicas=3)
        there.start(ReplicationService(there.deps))
        assert await waiting.wait_ready(session(there), WEB, timeout_s=60.0) == 0
        capsys.readouterr()
        bad = {**builders.TEMPLATE, "metadata": {"labels": {"app": "web", "bad": "true"}}}
        await there.change(template=bad)
        started = clock.monotonic()
        assert await waiting.wait_ready(session(there), WEB, timeout_s=60.0) == 1
        assert clock.monotonic() - started < 10.0, "as soon as it is known"
        reported = capsys.readouterr().err.splitlines()
        assert reported[-1] == "next: grange why grc/web"
        failure = "failed: grc/web: 3/3 ready, 1 of 3 updated; pod/web-d: web: no program nowhere"
        assert reported[-2] == failure


async def test_who_may_not_list_pods_waits_for_the_controller_alone(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await there.add_node("a")
        await there.add_controller(replicas=1)
        there.start(ReplicationService(there.deps))
        await there.until(lambda: there.ready(1))
        env = opened(there.deps.client, clock=clock, rng=rng, log=log)
        there.gate = lambda request: Forbidden("no") if request.path.endswith("/pods") else None
        task = asyncio.create_task(waiting.wait_ready(env, WEB, timeout_s=60.0))
        assert await task == 0


def test_crash_loop_of_new_controller_ends_the_wait() -> None:
    move: Document = {
        "kind": "RollingUpdate",
        "metadata": {"name": "m", "generation": 1},
        "spec": {"old": "one", "new": "two", "desired": 2},
        "status": {"observedGeneration": 1, "phase": "Progressing"},
    }
    looping = pod("two-0", crashed(4))
    looping["metadata"]["labels"][NAME_LABEL] = "two"
    state = rollout_status(move, [looping], NOW)
    assert (state.done, state.failed) == (False, True)
    assert "pod/two-0: main: ended with exit code 3" in state.text
    looping["metadata"]["labels"][NAME_LABEL] = "one"
    assert not rollout_status(move, [looping], NOW).failed, "it is to go anyway"
    looping["metadata"]["labels"][NAME_LABEL] = "two"
    move["status"]["phase"] = "RollingBack"
    assert not rollout_status(move, [looping], NOW).failed
    move["status"]["phase"] = "Failed"
    assert rollout_status(move, [], NOW).failed
    move["metadata"]["generation"] = 2
    assert not rollout_status(move, [], NOW).failed, "a change of the spec lets it go on"
