"""Every row of the table of health, in its order, and what decides between rows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from grange.api.kinds.pod import Pod
from grange.api.meta import Document
from grange.controllers.testsession.health import (
    WAITING_GRACE_S,
    Health,
    PodDiagnosis,
    diagnose,
    main_container,
)

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
SCHEDULED = "2026-03-01T11:59:50Z"  # ten seconds ago
RUNNING: Document = {"running": {"startedAt": SCHEDULED}}


def ended(code: int, **fields: Any) -> Document:
    return {"terminated": {"exitCode": code, **fields}}


def waiting(reason: str, message: str = "") -> Document:
    return {"waiting": {"reason": reason, "message": message}}


def container(name: str, state: Document, last: Document | None = None) -> Document:
    return {"name": name, "state": state, "lastState": last or {}}


def pod(*statuses: Document, meta: Document | None = None, **status: Any) -> Pod:
    """A scheduled pod of one container ``main`` with these container statuses."""
    spec: Document = {"containers": [{"name": "main"}], "nodeName": "n1", "restartPolicy": "Never"}
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": SCHEDULED},
        *status.pop("conditions", ()),
    ]
    spec.update(status.pop("spec", {}))
    found = {"containerStatuses": [*statuses], "conditions": conditions, **status}
    return msgspec.convert({"metadata": meta or {}, "spec": spec, "status": found}, Pod)


def healthy(*statuses: Document, **status: Any) -> Health:
    return diagnose(pod(*statuses, **status), NOW).health


def failed(diagnosis: PodDiagnosis) -> tuple[str, int | None, bool]:
    assert diagnosis.health is Health.FAILED
    return diagnosis.message, diagnosis.exit_code, diagnosis.is_infrastructure


def test_health_numbers_and_names() -> None:
    names = ["Unknown", "Ready", "NotReady", "Succeeded", "Failed"]
    assert [str(item) for item in sorted(Health)] == names
    assert [int(item) for item in Health] == [0, 1, 2, 3, 4]
    assert [item for item in Health if item.is_terminal] == [Health.SUCCEEDED, Health.FAILED]


# --- the table of the original --------------------------------------------------------------


def test_row_1_no_container_status_is_not_ready() -> None:
    found = diagnose(pod(), NOW)
    assert (found.health, found.message) == (
        Health.NOT_READY,
        "container main has no status yet",
    )


def test_row_2_last_termination_with_0_has_succeeded() -> None:
    found = diagnose(pod(container("main", RUNNING, ended(0))), NOW)
    assert (found.health, found.exit_code) == (Health.SUCCEEDED, 0)


def test_row_2_termination_with_0_has_succeeded() -> None:
    assert healthy(container("main", ended(0))) is Health.SUCCEEDED


def test_row_3_last_termination_beats_the_present_state() -> None:
    for state in (RUNNING, ended(0), waiting("CrashLoopBackOff")):
        found = diagnose(pod(container("main", state, ended(3))), NOW)
        assert failed(found) == ("container main: exit code 3", 3, False)


def test_row_3_message_has_reason_and_message() -> None:
    state = ended(137, reason="OOMKilled", message="used 2Gi of 1Gi, 100%s")
    found = diagnose(pod(container("main", state)), NOW)
    message = "container main: exit code 137 (OOMKilled): used 2Gi of 1Gi, 100%s"
    assert failed(found) == (message, 137, False)
    assert found.container == "main"


def test_row_4_crash_loop_has_failed() -> None:
    state = waiting("CrashLoopBackOff", "back-off 10s")
    found = diagnose(pod(container("main", state)), NOW)
    assert failed(found) == ("container main: CrashLoopBackOff: back-off 10s", None, False)


def test_row_5_running_without_probe_is_ready() -> None:
    unready = {"type": "Ready", "status": "False"}
    assert healthy(container("main", RUNNING), conditions=[unready]) is Health.READY


@pytest.mark.parametrize("state", [{}, waiting("ContainerCreating"), waiting("PodInitializing")])
def test_row_6_anything_else_is_unknown(state: Document) -> None:
    found = diagnose(pod(container("main", state)), NOW)
    assert (found.health, found.recheck_at) == (Health.UNKNOWN, None)


# --- several containers ----------------------------------------------------------------------

TWO: Document = {"containers": [{"name": "proxy"}, {"name": "main"}]}


def test_main_container_decides() -> None:
    others = (ended(1), ended(0), waiting("CrashLoopBackOff"), RUNNING)
    for other in others:
        found = pod(container("proxy", other), container("main", RUNNING), spec=TWO)
        assert diagnose(found, NOW).health is Health.READY
    found = pod(container("proxy", RUNNING), container("main", ended(2)), spec=TWO)
    assert diagnose(found, NOW).exit_code == 2


def test_first_container_decides_without_main() -> None:
    spec: Document = {"containers": [{"name": "bench"}, {"name": "proxy"}]}
    found = pod(container("proxy", ended(1)), container("bench", ended(0)), spec=spec)
    assert main_container(found) == "bench"
    assert diagnose(found, NOW).health is Health.SUCCEEDED


def test_missing_status_of_main_is_not_ready() -> None:
    assert healthy(container("proxy", RUNNING), spec=TWO) is Health.NOT_READY


# --- deletion ---------------------------------------------------------------------------------

DELETED: Document = {
    "deletionTimestamp": "2026-03-01T12:00:20Z",  # asked for at 11:59:50
    "deletionGracePeriodSeconds": 30,
}


def test_deletion_outranks_a_running_container() -> None:
    found = diagnose(pod(container("main", RUNNING), meta=DELETED), NOW)
    assert failed(found) == ("the pod is being deleted", None, True)


def test_exit_after_the_deletion_was_asked_for_has_failed() -> None:
    for code in (0, 1):
        for at in ("2026-03-01T11:59:50Z", "2026-03-01T11:59:55Z", None):
            state = ended(code, finishedAt=at)
            found = diagnose(pod(container("main", state), meta=DELETED), NOW)
            assert failed(found) == ("the pod is being deleted", None, True)


def test_exit_before_the_deletion_counts() -> None:
    def outcome(code: int) -> PodDiagnosis:
        state = ended(code, finishedAt="2026-03-01T11:59:49Z")
        return diagnose(pod(container("main", state), meta=DELETED), NOW)

    assert outcome(0).health is Health.SUCCEEDED
    assert failed(outcome(4))[1:] == (4, False)


def test_pod_that_is_gone_has_failed() -> None:
    found = diagnose(pod(container("main", RUNNING)), NOW, deleted=True)
    assert failed(found) == ("the pod was deleted", None, True)


def test_pod_that_is_gone_keeps_its_outcome() -> None:
    found = diagnose(pod(container("main", ended(0))), NOW, deleted=True)
    assert found.health is Health.SUCCEEDED


def test_deletion_by_an_eviction_names_it() -> None:
    mark: Document = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "drained",
    }
    gone = pod(container("main", RUNNING), meta=DELETED, conditions=[mark])
    message = "the pod is being deleted: EvictionByEvictionAPI: drained"
    assert failed(diagnose(gone, NOW))[0] == message
    alive = pod(container("main", RUNNING), conditions=[mark])
    assert diagnose(alive, NOW).health is Health.READY  # the deletion has not come yet


# --- the phase of the pod ----------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["Evicted", "OutOfcpu", "NodeLost", "Preempting"])
def test_pod_failed_by_its_node_is_infrastructure(reason: str) -> None:
    for state in ((), (container("main", ended(137)),), (container("main", RUNNING),)):
        found = diagnose(pod(*state, phase="Failed", reason=reason, message="why"), NOW)
        assert failed(found) == (f"{reason}: why", None, True)


def test_failed_pod_that_was_disrupted_is_infrastructure() -> None:
    mark = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    found = pod(container("main", ended(143)), phase="Failed", conditions=[mark])
    assert failed(diagnose(found, NOW)) == ("PreemptionByScheduler", None, True)


def test_failed_pod_without_reason_has_its_exit_code() -> None:
    found = diagnose(pod(container("main", ended(9)), phase="Failed"), NOW)
    assert failed(found)[1:] == (9, False)


def test_phase_counts_where_no_container_status_is_left() -> None:
    assert healthy(phase="Succeeded") is Health.SUCCEEDED
    assert failed(diagnose(pod(phase="Failed"), NOW))[2] is True


def test_deadline_in_the_pod_spec_is_not_infrastructure() -> None:
    found = diagnose(pod(phase="Failed", reason="DeadlineExceeded"), NOW)
    assert failed(found) == ("DeadlineExceeded", None, False)


# --- init containers ---------------------------------------------------------------------------

INIT: Document = {
    "initContainers": [{"name": "clone"}, {"name": "proxy", "restartPolicy": "Always"}]
}


def test_failed_init_container_has_failed() -> None:
    main = container("main", waiting("PodInitializing"))
    init = [container("clone", ended(128, message="no such ref"))]
    found = diagnose(pod(main, initContainerStatuses=init, spec=INIT), NOW)
    assert failed(found) == ("container clone: exit code 128: no such ref", 128, False)
    assert found.container == "clone"


def test_init_container_that_is_retried_has_not_failed() -> None:
    main = container("main", waiting("PodInitializing"))
    retried = {**INIT, "restartPolicy": "OnFailure"}

    def health(state: Document, last: Document | None = None) -> Health:
        init = [container("clone", state, last)]
        return healthy(main, initContainerStatuses=init, spec=retried)

    assert health(ended(1)) is health(RUNNING, ended(1)) is Health.UNKNOWN
    assert health(waiting("CrashLoopBackOff"), ended(1)) is Health.FAILED


def test_sidecar_does_not_decide() -> None:
    main = container("main", RUNNING)
    for state in (ended(1), waiting("CrashLoopBackOff")):
        init = [container("clone", ended(0)), container("proxy", state)]
        assert healthy(main, initContainerStatuses=init, spec=INIT) is Health.READY


# --- images and configuration ------------------------------------------------------------------

NOT_CREATABLE = [
    *("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"),
    *("CreateContainerConfigError", "ImageRuntimeUnavailable"),
]


@pytest.mark.parametrize("reason", NOT_CREATABLE)
def test_missing_image_fails_past_a_grace(reason: str) -> None:
    found = pod(container("main", waiting(reason, "no such image")))
    due = NOW + timedelta(seconds=WAITING_GRACE_S - 10)
    early = diagnose(found, NOW)
    assert (early.health, early.recheck_at) == (Health.UNKNOWN, due)
    assert diagnose(found, due - timedelta(microseconds=1)).health is Health.UNKNOWN
    message = f"container main: {reason}: no such image"
    assert failed(diagnose(found, due)) == (message, None, True)
    assert early.message == message


def test_missing_image_of_an_init_container_fails() -> None:
    init = [container("clone", waiting("ErrImagePull"))]
    found = pod(
        container("main", waiting("PodInitializing")), initContainerStatuses=init, spec=INIT
    )
    later = NOW + timedelta(seconds=WAITING_GRACE_S)
    assert failed(diagnose(found, later)) == ("container clone: ErrImagePull", None, True)


def test_grace_counts_from_the_start_without_a_condition() -> None:
    document: Document = {
        "metadata": {"creationTimestamp": SCHEDULED},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"containerStatuses": [container("main", waiting("ErrImagePull"))]},
    }
    found = diagnose(msgspec.convert(document, Pod), NOW)
    assert found.recheck_at == NOW + timedelta(seconds=WAITING_GRACE_S - 10)


@pytest.mark.parametrize("reason", ["StartError", "ContainerStatusUnknown", "ContainerCannotRun"])
def test_container_that_did_not_run_is_infrastructure(reason: str) -> None:
    found = diagnose(pod(container("main", ended(128, reason=reason, message="no bash"))), NOW)
    assert failed(found) == (f"container main: exit code 128 ({reason}): no bash", 128, True)


# --- probes -------------------------------------------------------------------------------------

PROBED: Document = {"containers": [{"name": "main", "readinessProbe": {"tcpSocket": {"port": 1}}}]}
GATED: Document = {"readinessGates": [{"conditionType": "example.com/warm"}]}


@pytest.mark.parametrize("spec", [PROBED, GATED])
def test_ready_condition_decides_where_it_means_something(spec: Document) -> None:
    def found(*conditions: Document) -> PodDiagnosis:
        return diagnose(pod(container("main", RUNNING), spec=spec, conditions=conditions), NOW)

    unready = {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "m"}
    assert found({"type": "Ready", "status": "True"}).health is Health.READY
    assert found(unready).health is found().health is Health.NOT_READY
    assert found(unready).message == "ContainersNotReady: m"


# --- before it starts ---------------------------------------------------------------------------


def test_unscheduled_pod_is_not_ready_and_has_the_reason() -> None:
    why = "0/3 nodes are available"
    state: Document = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": why,
    }
    document: Document = {"spec": PROBED, "status": {"conditions": [state]}}
    found = diagnose(msgspec.convert(document, Pod), NOW)
    assert (found.health, found.message) == (Health.NOT_READY, f"Unschedulable: {why}")


def test_empty_pod_is_not_ready() -> None:
    found = diagnose(msgspec.convert({}, Pod), NOW)
    assert (found.health, found.message) == (Health.NOT_READY, "the pod is not scheduled yet")
