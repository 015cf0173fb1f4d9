"""The pure core of the session controller, phase by phase."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.unit.testsession.session_simulator import (
    DRIVER,
    WORKER,
    SessionSimulator,
    session_document,
)

from grange.api import timestamps
from grange.api.kinds.testsession import (
    SessionEvent,
    SessionEvidenceStatus,
    SessionRetries,
    SessionTimeouts,
    TestSession,
)
from grange.controllers.testsession import queueing, session_events
from grange.controllers.testsession.evidence_collector import CollectedEvidence
from grange.controllers.testsession.session_events import RETRY
from grange.controllers.testsession.session_inputs import GroupMembers

POOLS = {"server": "workers", "client": "workers", "driver": "drivers"}
MACHINES = {"w1": "workers", "w2": "workers", "d1": "drivers"}
NO_RETRY = SessionRetries(infrastructure=0)


def pooled(**inputs: Any) -> SessionSimulator:
    """A session that needs three machines."""
    return SessionSimulator(default_pools=POOLS, **inputs)


def granted() -> SessionSimulator:
    """A session that has its machines."""
    simulator = pooled()
    simulator.settle()
    simulator.grant(MACHINES)
    return simulator


# --- the usual way -----------------------------------------------------------------------------


def test_session_without_pools_runs_and_passes() -> None:
    simulator = SessionSimulator().started()
    assert simulator.leases == {}
    simulator.exit("qps-driver")
    status = simulator.finished()
    assert (status.phase, status.verdict) == ("Succeeded", "Passed")
    assert simulator.events == ["QUEUE", "ACCEPT", "PROVISION", "RUN", "DONE"]
    assert simulator.pods == {}
    assert status.completion_time
    assert [item.exit_code for item in status.components] == [None, None, 0]


def test_driver_is_created_when_all_workers_are_ready() -> None:
    simulator = SessionSimulator()
    decision = simulator.step()
    assert [pod.name for pod in decision.create] == ["qps-server", "qps-client"]
    simulator.run("qps-client")
    assert simulator.step().create == ()
    simulator.run("qps-client")
    assert simulator.step().create == (), "the client twice is not the server"
    simulator.run("qps-server")
    decision = simulator.step()
    assert [pod.name for pod in decision.create] == ["qps-driver"]
    assert [item.pod.name for item in decision.workers] == ["qps-server", "qps-client"]
    assert simulator.status.phase == "Provisioning"
    assert simulator.status.message == "2 of 3 components are ready"


def test_a_ready_worker_without_an_address_is_waited_for() -> None:
    simulator = SessionSimulator()
    simulator.settle()
    simulator.run()
    simulator._set("qps-server", "Running", {"running": {}}, podIP="")
    assert simulator.step().create == ()


def test_leased_session_waits_in_the_queue_and_pins_its_pods() -> None:
    simulator = pooled()
    simulator.settle()
    assert simulator.status.phase == "Queued"
    [lease] = simulator.leases.values()
    assert lease.metadata.name == "qps-0"
    assert [(item.pool, item.count) for item in lease.spec.machines] == [
        ("workers", 2),
        ("drivers", 1),
    ]
    assert lease.spec.holder.uid == "uid-qps"
    assert simulator.pods == {}
    simulator.grant(MACHINES)
    decision = simulator.step()
    assert decision.context.nodes == {
        "qps-server": "w1",
        "qps-client": "w2",
        "qps-driver": "d1",
    }
    assert simulator.status.start_time
    assert simulator.status.lease == "qps-0"


def test_lease_is_released_only_when_the_pods_are_gone() -> None:
    simulator = granted().started()
    simulator.exit("qps-driver")
    simulator.settle()
    assert simulator.status.phase == "Cleaning"
    assert simulator.leases
    simulator.stop_deleted()
    simulator.inputs["confirmed"] = False
    simulator.settle()
    assert simulator.leases, "the server has not confirmed that they are gone"
    simulator.inputs["confirmed"] = True
    simulator.settle()
    assert simulator.leases == {}
    assert simulator.status.phase == "Succeeded"


def test_one_pass_writes_the_status_once_at_most() -> None:
    simulator = granted()
    before = simulator.writes
    simulator.step()
    assert simulator.writes == before + 1
    assert simulator.events == ["QUEUE", "ACCEPT", "PROVISION"]
    simulator.settle()
    assert simulator.step().status == simulator.status


# --- the verdict -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "verdict", "reason"),
    [
        ([("qps-driver", 0)], "Passed", ""),
        ([("qps-driver", 3)], "Failed", "TestFailed"),
        ([("qps-server", 1)], "Failed", "WorkerFailed"),
        ([("qps-server", 0), ("qps-driver", 0)], "Passed", ""),
        ([("qps-server", 1), ("qps-driver", 0)], "Passed", ""),
        ([("qps-server", 0), ("qps-driver", 1)], "Failed", "TestFailed"),
    ],
)
def test_verdict_is_the_drivers(ends: list[tuple[str, int]], verdict: str, reason: str) -> None:
    simulator = SessionSimulator().started()
    for name, code in ends:
        simulator.exit(name, code)
    status = simulator.finished()
    assert (status.verdict, status.reason) == (verdict, reason)
    assert simulator.events[-1] == ("DONE" if verdict == "Passed" else "ERROR")


@pytest.mark.parametrize(
    ("component", "reason"),
    [
        *(("server", "WorkerFailed"), ("client", "WorkerFailed"), ("proxy", "WorkerFailed")),
        ("driver", "TestFailed"),
    ],
)
def test_failure_of_each_role_fails_the_session(component: str, reason: str) -> None:
    document = session_document(roles={"proxy": [{"command": ["work"]}]})
    simulator = SessionSimulator(document).started()
    simulator.exit(f"qps-{component}", 1)
    status = simulator.finished()
    assert (status.phase, status.verdict, status.reason) == ("Failed", "Failed", reason)
    assert component in status.message
    assert simulator.pods == {}


def test_driver_alone_runs_and_passes() -> None:
    simulator = SessionSimulator(session_document(servers=[], clients=[])).started()
    assert [*simulator.pods] == ["qps-driver"]
    simulator.exit("qps-driver")
    assert simulator.finished().verdict == "Passed"


def test_worker_that_ends_with_zero_does_not_end_the_session() -> None:
    simulator = SessionSimulator().started()
    simulator.exit("qps-server")
    simulator.settle()
    assert simulator.status.phase == "Running"


def test_driver_that_ends_before_it_is_seen_ready_is_done() -> None:
    simulator = SessionSimulator()
    simulator.settle()
    simulator.run()
    simulator.settle()
    simulator.exit("qps-driver")
    status = simulator.finished()
    assert status.phase == "Succeeded"
    assert simulator.events == ["QUEUE", "ACCEPT", "PROVISION", "RUN", "DONE"]


def test_driver_that_fails_while_provisioning_has_run() -> None:
    simulator = SessionSimulator()
    simulator.settle()
    simulator.run()
    simulator.settle()
    simulator.exit("qps-driver", 2)
    assert simulator.finished().reason == "TestFailed"
    assert simulator.events[-2:] == ["RUN", "ERROR"]


def test_of_two_failures_the_first_is_the_reason() -> None:
    simulator = SessionSimulator().started()
    simulator.exit("qps-server", 1)
    simulator.forward(5)
    simulator.exit("qps-driver", 1)
    assert simulator.finished().reason == "WorkerFailed"


def test_a_lost_worker_outweighs_the_exit_of_the_driver() -> None:
    simulator = SessionSimulator(session_document(retries={"infrastructure": 0})).started()
    simulator.lose("qps-server")
    simulator.exit("qps-driver", 1)
    status = simulator.finished()
    assert (status.verdict, status.reason) == ("Error", "PodLost")


def test_a_pod_that_is_gone_ends_the_attempt() -> None:
    simulator = SessionSimulator(session_document(retries={"infrastructure": 0})).started()
    del simulator.pods["qps-client"]
    status = simulator.finished()
    assert (status.phase, status.reason) == ("Errored", "PodLost")
    client = status.components[1]
    assert (client.health, client.message) == ("Failed", "the pod is gone")


def test_missing_image_is_an_infrastructure_error() -> None:
    simulator = SessionSimulator(session_document(retries={"infrastructure": 0}))
    simulator.settle()
    simulator.wait("qps-server", "ImagePullBackOff")
    decision = simulator.step()
    assert decision.requeue_s == 30.0
    simulator.forward(31)
    status = simulator.finished()
    assert (status.verdict, status.reason) == ("Error", "StartFailed")
    assert "qps" not in simulator.pods
    assert "server" in status.message


def test_refused_pod_ends_the_session() -> None:
    simulator = SessionSimulator(refused={"qps-server": "spec.volumes[0]: unknown"})
    simulator.settle()
    status = simulator.finished()
    assert (status.verdict, status.reason) == ("Error", "InvalidPod")
    assert "spec.volumes[0]: unknown" in status.message
    assert status.attempt == 0


def test_percent_signs_of_messages_survive() -> None:
    simulator = SessionSimulator(session_document()).started()
    simulator.exit("qps-driver", 1, message="100%s of %d %")
    status = simulator.finished()
    assert "100%s of %d %" in status.message
    assert "100%s of %d %" in status.events[-1].message


# --- deadlines ---------------------------------------------------------------------------------


def test_provisioning_timeout_names_what_is_not_ready() -> None:
    timeouts = {"provisionSeconds": 60}
    document = session_document(timeouts=timeouts, retries={"infrastructure": 0})
    simulator = SessionSimulator(document)
    simulator.settle()
    simulator.run("qps-client")
    simulator.settle()
    simulator.forward(59)
    simulator.settle()
    assert simulator.status.phase == "Provisioning"
    simulator.forward(1)
    status = simulator.finished()
    assert (status.verdict, status.reason) == ("Error", "ProvisionTimeout")
    assert "Provisioning for 60 s" in status.message
    assert "server (NotReady" in status.message
    assert "driver (not created)" in status.message
    assert "client" not in status.message
    assert simulator.pods == {}


def test_run_ends_after_its_time() -> None:
    simulator = SessionSimulator(session_document(timeouts={"runSeconds": 30})).started()
    simulator.forward(30)
    status = simulator.finished()
    assert (status.phase, status.reason) == ("Failed", "RunTimeout")
    assert "Running for 30 s" in status.message


@pytest.mark.parametrize(("after_s", "verdict"), [(29, "Passed"), (31, "Failed")])
def test_drivers_end_counts_by_its_own_time(after_s: int, verdict: str) -> None:
    simulator = SessionSimulator(session_document(timeouts={"runSeconds": 30})).started()
    simulator.forward(after_s)
    simulator.exit("qps-driver")
    simulator.forward(60)
    assert simulator.finished().verdict == verdict


@pytest.mark.parametrize(("ran_s", "verdict"), [(30, "Passed"), (31, "Failed")])
def test_clock_of_the_node_may_be_wrong(ran_s: int, verdict: str) -> None:
    """The driver's own times are compared with each other, not only with the controller's clock."""
    simulator = SessionSimulator(session_document(timeouts={"runSeconds": 30})).started()
    started = timestamps.shift(simulator.now, 3_600)
    simulator.exit(
        "qps-driver",
        startedAt=timestamps.rfc3339(started),
        finishedAt=timestamps.rfc3339(timestamps.shift(started, ran_s)),
    )
    simulator.forward(ran_s)
    assert simulator.finished().verdict == verdict


def test_queue_time_is_limited_and_not_retried() -> None:
    simulator = SessionSimulator(
        session_document(timeouts={"queueSeconds": 100}), default_pools=POOLS
    )
    simulator.settle()
    simulator.forward(100)
    status = simulator.finished()
    assert (status.phase, status.reason, status.attempt) == ("Errored", "QueueTimeout", 0)
    assert simulator.leases == {}
    assert simulator.events == ["QUEUE", "ERROR"]


def test_pods_that_do_not_end_are_deleted_without_grace() -> None:
    simulator = SessionSimulator(session_document(timeouts={"cleanupSeconds": 20})).started()
    simulator.exit("qps-driver")
    simulator.settle()
    assert not any(item.forced for item in simulator.decisions[-1].remove)
    simulator.forward(20)
    simulator.settle()
    assert simulator.pods == {}
    assert simulator.status.phase == "Succeeded"
    assert simulator.events[-2:] == ["INTERNAL_ERROR", "DONE"]


def test_every_phase_asks_to_be_looked_at_at_its_deadline() -> None:
    timeouts = {"provisionSeconds": 10, "runSeconds": 20, "cleanupSeconds": 40}
    simulator = SessionSimulator(session_document(timeouts=timeouts))
    assert simulator.step().requeue_s == 10
    simulator.started()
    assert simulator.step().requeue_s == 20
    simulator.exit("qps-driver")
    simulator.settle()
    assert simulator.step().requeue_s == 40


# --- machines ----------------------------------------------------------------------------------


def test_impossible_session_ends_at_once_with_the_facts() -> None:
    simulator = pooled()
    simulator.settle()
    why = "pool drivers has 0 machines and 1 is requested"
    simulator.lease_status(phase="Rejected", reason="PoolCapacity", message=why)
    status = simulator.finished()
    assert (status.phase, status.verdict) == ("Errored", "Error")
    assert (status.reason, status.message) == ("PoolCapacity", why)
    assert simulator.events == ["QUEUE", "ERROR"]
    assert simulator.leases == {}


def test_lost_machine_ends_the_attempt() -> None:
    simulator = granted().started()
    simulator.spec(retries=NO_RETRY)
    simulator.inputs["machines"] = frozenset({"w1", "d1"})
    status = simulator.finished()
    assert (status.verdict, status.reason) == ("Error", "MachineLost")
    assert "w2" in status.message


def test_lease_that_others_release_ends_the_attempt() -> None:
    simulator = granted().started()
    simulator.spec(retries=NO_RETRY)
    simulator.lease_status(phase="Expired")
    assert simulator.finished().reason == "MachineLost"


def test_place_in_the_queue_is_shown_with_few_writes() -> None:
    simulator = pooled()
    simulator.settle()
    writes = simulator.writes
    for position in range(1000, 0, -1):
        simulator.lease_status(position=position, reason="PoolAvailability", message="wait")
        simulator.settle()
    assert simulator.status.position == 1
    assert simulator.writes - writes < 70


def test_priority_follows_the_session() -> None:
    simulator = pooled()
    simulator.settle()
    simulator.spec(priority=7)
    simulator.settle()
    assert simulator.leases["qps-0"].spec.priority == 7


def test_name_of_the_lease_that_another_has_is_waited_for() -> None:
    simulator = pooled(occupied={"qps-0": "no owner"})
    simulator.settle()
    assert simulator.leases == {}
    assert simulator.status.reason == "NameTaken"
    assert simulator.step().requeue_s == 5.0


# --- cancel, groups, retries -------------------------------------------------------------------


@pytest.mark.parametrize("wish", ["Collect", "Now"])
@pytest.mark.parametrize("phase", ["Queued", "Provisioning", "Running"])
def test_cancel_ends_the_session_in_every_phase(phase: str, wish: str) -> None:
    simulator = pooled() if phase == "Queued" else SessionSimulator()
    simulator.settle()
    if phase == "Running":
        simulator.started()
    assert simulator.status.phase == phase
    simulator.spec(cancel=wish)
    status = simulator.finished()
    assert (status.phase, status.verdict, status.reason) == ("Cancelled", "Cancelled", "Cancelled")
    assert simulator.events[-1] == "CANCELLED"
    assert simulator.events.count("CANCELLED") == 1
    assert (simulator.pods, simulator.leases) == ({}, {})


@pytest.mark.parametrize(("wish", "collects"), [("Collect", True), ("Now", False)])
def test_cancel_keeps_evidence_only_if_asked(wish: str, collects: bool) -> None:
    simulator = SessionSimulator(collects=True).started()
    simulator.spec(cancel=wish)
    simulator.settle()
    assert (simulator.status.phase == "Collecting") is collects


def test_cancelled_session_that_is_cleaned_up_is_not_retried() -> None:
    simulator = SessionSimulator(session_document(retries={"failure": 3})).started()
    simulator.exit("qps-driver", 1)
    simulator.settle()
    simulator.spec(cancel="Now")
    status = simulator.finished()
    assert (status.phase, status.attempt) == ("Failed", 0)


def test_newer_session_of_the_group_supersedes() -> None:
    simulator = SessionSimulator().started()
    simulator.inputs["group"] = GroupMembers(superseding="qps-2")
    status = simulator.finished()
    assert (status.verdict, status.reason) == ("Cancelled", "Superseded")
    assert "qps-2" in status.message


def test_session_waits_until_its_group_of_its_second_is_known() -> None:
    simulator = pooled(group=GroupMembers(known_in_s=1.5))
    assert simulator.step().requeue_s is not None
    simulator.settle()
    assert (simulator.status.phase, simulator.leases) == ("Queued", {})
    simulator.inputs["group"] = GroupMembers()
    simulator.settle()
    assert simulator.leases


@pytest.mark.parametrize(
    ("created", "queued", "expected"),
    [
        ("2026-01-01T00:00:10Z", None, 2.0),
        ("2026-01-01T00:00:09Z", "2026-01-01T00:00:09.5Z", 1.0),
        ("2026-01-01T00:00:08Z", "2026-01-01T00:00:10Z", 0.0),
        ("2026-01-01T01:00:00Z", "2026-01-01T00:00:09.5Z", 1.5),  # by a clock that is ahead
        ("2026-01-01T01:00:00Z", "2026-01-01T00:00:08Z", 0.0),
        (None, None, 2.0),
    ],
)
def test_others_of_its_second_are_known_soon(
    created: str | None, queued: str | None, expected: float
) -> None:
    document = {
        "metadata": {"name": "a", "uid": "a", "creationTimestamp": created},
        "spec": {"concurrency": {"group": "g"}},
        "status": {"phase": "Queued", "phaseTime": queued},
    }
    session = msgspec.convert(document, TestSession)
    now = datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)
    assert queueing.group_members(session, [session], now).known_in_s == expected


def test_session_waits_for_older_ones_of_its_group() -> None:
    simulator = pooled(group=GroupMembers(unfinished="qps-1"))
    simulator.settle()
    assert (simulator.status.reason, simulator.leases) == ("Concurrency", {})
    simulator.inputs["group"] = GroupMembers()
    simulator.settle()
    assert simulator.leases


def test_infrastructure_error_is_retried_with_a_new_lease() -> None:
    simulator = granted().started()
    simulator.lose("qps-server")
    simulator.finished()
    status = simulator.status
    assert (status.phase, status.attempt, status.verdict) == ("Queued", 1, "")
    assert [*simulator.leases] == ["qps-1"]
    assert simulator.events == ["QUEUE", "ACCEPT", "PROVISION", "RUN", "RETRY"]
    assert status.events[-1].reason == "PodLost"
    simulator.grant(MACHINES)
    simulator.started()
    labels = simulator.pods["qps-driver"].metadata.labels
    assert labels["grange.dev/session-attempt"] == "1"
    assert labels["grange.dev/machine-lease"] == "uid-qps-1"
    simulator.lose("qps-server")
    status = simulator.finished()
    assert (status.phase, status.reason, status.attempt) == ("Errored", "PodLost", 1)


@pytest.mark.parametrize(("retries", "attempts"), [(0, 0), (2, 2)])
def test_test_failures_are_retried_only_on_request(retries: int, attempts: int) -> None:
    simulator = SessionSimulator(session_document(retries={"failure": retries}))
    for _ in range(attempts + 1):
        simulator.started()
        simulator.exit("qps-driver", 1)
        simulator.finished()
    assert (simulator.status.phase, simulator.status.attempt) == ("Failed", attempts)
    assert simulator.events.count("RETRY") == attempts
    assert simulator.events.count("ERROR") == 1


def test_events_of_the_last_attempts_are_kept() -> None:
    retries = {"failure": 20, "infrastructure": 5}
    simulator = SessionSimulator(session_document(retries=retries))
    for attempt in range(26):
        simulator.started()
        if attempt % 5 == 1:
            simulator.lose("qps-server")
        else:
            simulator.exit("qps-driver", 1)
        simulator.finished()
    status = simulator.status
    assert (status.phase, status.attempt, status.failure_retries) == ("Failed", 25, 20)
    assert simulator.events == [
        "QUEUE",
        *["ACCEPT", "PROVISION", "RUN", "RETRY"] * 10,
        *["ACCEPT", "PROVISION", "RUN", "ERROR"],
    ]


def test_events_since_a_status_survive_what_was_dropped() -> None:
    found = [SessionEvent(RETRY, f"t{number}") for number in range(30)]
    kept = session_events.latest(found)
    assert kept == (found[0], *found[20:])
    assert session_events.events_since(found[:28], kept) == (found[28], found[29])
    assert session_events.events_since((), kept) == kept
    assert session_events.events_since(kept, kept) == ()


def test_pods_of_an_earlier_attempt_are_in_the_way() -> None:
    simulator = granted().started()
    old = simulator.pods["qps-server"]
    simulator.lose("qps-server")
    simulator.finished()
    simulator.pods["qps-server"] = old  # created late
    simulator.grant(MACHINES)
    simulator.settle()
    assert simulator.status.phase == "Accepted"
    assert simulator.pods["qps-server"].metadata.deletion_timestamp
    simulator.stop_deleted()
    simulator.settle()
    assert simulator.status.phase == "Provisioning"


# --- evidence ----------------------------------------------------------------------------------


def test_evidence_is_collected_before_the_pods_go() -> None:
    simulator = SessionSimulator(collects=True).started()
    simulator.exit("qps-driver")
    simulator.settle()
    assert simulator.status.phase == "Collecting"
    assert simulator.status.verdict == "Passed"
    assert simulator.decisions[-1].collect
    assert not any(pod.metadata.deletion_timestamp for pod in simulator.pods.values())
    kept = SessionEvidenceStatus(url="http://e", complete=True)
    simulator.inputs["evidence"] = CollectedEvidence(kept)
    status = simulator.finished()
    assert (status.phase, status.evidence) == ("Succeeded", kept)


def test_evidence_that_takes_too_long_is_given_up() -> None:
    simulator = SessionSimulator(collects=True)
    simulator.spec(timeouts=SessionTimeouts(collect_seconds=10))
    simulator.started()
    simulator.exit("qps-driver")
    simulator.settle()
    simulator.forward(10)
    status = simulator.finished()
    assert status.phase == "Succeeded"
    assert "10 s" in status.evidence.message
    assert simulator.events[-2:] == ["INTERNAL_ERROR", "DONE"]


def test_files_are_removed_before_the_next_attempt() -> None:
    simulator = SessionSimulator().started()
    files = simulator.decisions[-1].context.files
    simulator.exit("qps-driver")
    assert simulator.step().remove_files == (f"{files}-driver", files)


# --- the end -----------------------------------------------------------------------------------


def test_end_never_changes_and_late_pods_are_removed() -> None:
    simulator = SessionSimulator().started()
    late = simulator.pods["qps-driver"]
    simulator.exit("qps-driver")
    end = simulator.finished()
    writes = simulator.writes
    simulator.pods["qps-driver"] = late
    simulator.spec(cancel="Now")
    simulator.inputs["group"] = GroupMembers(superseding="other")
    assert simulator.settle() == end
    assert simulator.writes == writes
    assert simulator.pods["qps-driver"].metadata.deletion_timestamp


def test_finished_session_is_deleted_after_its_time() -> None:
    simulator = SessionSimulator(session_document(ttlSecondsAfterFinished=60)).started()
    simulator.exit("qps-driver")
    simulator.finished()
    decision = simulator.step()
    assert (decision.requeue_s, decision.delete_session) == (60, False)
    simulator.forward(60)
    assert simulator.step().delete_session


def test_invalid_spec_ends_where_admission_does_not_check() -> None:
    document = session_document(servers=[{**WORKER, "name": "driver"}], driver=DRIVER)
    simulator = SessionSimulator(document)
    status = simulator.finished()
    assert (status.phase, status.reason) == ("Errored", "InvalidSpec")
    assert "spec.servers[0].name" in status.message
    assert simulator.pods == {}


def test_session_of_too_many_pods_ends_without_listing_them() -> None:
    document = session_document(servers=[{**WORKER, "count": 2**31 - 1}])
    status = SessionSimulator(document).finished()
    assert (status.phase, status.reason) == ("Errored", "InvalidSpec")
    assert "10000 pods" in status.message


def test_status_that_a_user_has_spoilt_leads_to_an_end() -> None:
    for phase in ("Cleaning", "Running", "Accepted", "Collecting"):
        document = session_document(ttlSecondsAfterFinished=2**62, timeouts={"runSeconds": 2**62})
        document["status"] = {"phase": phase, "verdict": "Maybe", "phaseTime": "yesterday"}
        simulator = SessionSimulator(document)
        simulator.spec(cancel="Now")
        assert simulator.finished().phase in ("Cancelled", "Errored")


def test_session_without_a_driver_ends() -> None:
    document = session_document()
    del document["spec"]["driver"]
    status = SessionSimulator(document).finished()
    assert (status.phase, status.reason) == ("Errored", "InvalidSpec")
