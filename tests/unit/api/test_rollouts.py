"""Fields and rules of rollouts, and the patches that drive them."""

from typing import Any

import pytest
from tests.unit.api.documents import controller

from grange.api import rollouts, schema
from grange.api.kinds import REPLICATIONCONTROLLER, ROLLINGUPDATE
from grange.api.rollouts import NoSuchRevision, Revision
from grange.api.scheme import AnyKind
from grange.api.validation import validate

Document = dict[str, Any]


def rolling_update(**spec: Any) -> Document:
    wanted = {"old": "web-1", "new": "web-2", "desired": 3, "minimum": 2, **spec}
    return {
        "apiVersion": ROLLINGUPDATE.api_version,
        "kind": "RollingUpdate",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {key: value for key, value in wanted.items() if value is not None},
    }


def faults(info: AnyKind, document: Document, old: Document | None = None) -> list[tuple[str, str]]:
    assert schema.check(document, info) == []
    schema.apply_defaults(document, info)
    return [(cause.field, cause.message) for cause in validate(document, old, info)]


@pytest.mark.parametrize(
    ("rollout", "field", "part"),
    [
        ({"type": "Recreate"}, "spec.rollout.type", "RollingUpdate"),
        ({"canary": "a few"}, "spec.rollout.canary", "a percentage like 25%"),
        ({"canary": -1}, "spec.rollout.canary", "greater than or equal to 0"),
    ],
)
def test_rollouts_of_a_controller_are_judged(rollout: Document, field: str, part: str) -> None:
    document = controller(rollout=rollout)
    found = [(c.field, c.message) for c in validate(document, None, REPLICATIONCONTROLLER)]
    assert [path for path, _ in found] == [field]
    assert part in found[0][1]


def test_a_canary_of_none_or_all_is_fine() -> None:
    for canary in (0, 3, "0%", "100%"):
        assert faults(REPLICATIONCONTROLLER, controller(rollout={"canary": canary})) == []


def test_a_rolling_update_that_can_be_done_is_accepted() -> None:
    assert faults(ROLLINGUPDATE, rolling_update()) == []
    assert faults(ROLLINGUPDATE, rolling_update(desired=0, minimum=0)) == []
    assert faults(ROLLINGUPDATE, rolling_update(desired=1, minimum=1, maxSurge=1)) == []
    assert faults(ROLLINGUPDATE, rolling_update(old=None, canary=1)) == []


@pytest.mark.parametrize(
    ("spec", "field", "part"),
    [
        ({"old": "web-2"}, "spec.new", "needs two controllers"),
        ({"minimum": 4}, "spec.minimum", "must not be greater than spec.desired, 3"),
        ({"minimum": 3}, "spec.minimum", "while spec.maxSurge is 0"),
        ({"canary": 4}, "spec.canary", "must not be greater than spec.desired, 3"),
        ({"old": None, "leaveOld": True}, "spec.leaveOld", "needs spec.old"),
        ({"new": "Web"}, "spec.new", "lower-case"),
    ],
)
def test_bad_rolling_update_input_names_field_and_remedy(
    spec: Document, field: str, part: str
) -> None:
    found = faults(ROLLINGUPDATE, rolling_update(**spec))
    assert [path for path, _ in found] == [field]
    assert part in found[0][1]


NOT_NEGATIVE = "Invalid value: -1: must be greater than or equal to 0"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"replicas": -1}, "spec.replicas"),
        ({"rollout": {"minReadySeconds": -1}}, "spec.rollout.minReadySeconds"),
        ({"rollout": {"progressDeadlineSeconds": -1}}, "spec.rollout.progressDeadlineSeconds"),
        ({"rollout": {"revisionHistoryLimit": -1}}, "spec.rollout.revisionHistoryLimit"),
    ],
)
def test_counts_of_a_controller_are_not_negative(spec: Document, field: str) -> None:
    [cause] = schema.check(controller(**spec), REPLICATIONCONTROLLER)
    assert (cause.field, cause.message) == (field, NOT_NEGATIVE)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        *(({field: -1}, f"spec.{field}") for field in ("desired", "minimum", "maxSurge", "canary")),
        ({"progressDeadlineSeconds": -1}, "spec.progressDeadlineSeconds"),
        ({"ttlSecondsAfterFinished": -1}, "spec.ttlSecondsAfterFinished"),
        ({"startingReplicas": {"old": -1, "new": 0}}, "spec.startingReplicas.old"),
    ],
)
def test_counts_of_a_rolling_update_are_not_negative(spec: Document, field: str) -> None:
    [cause] = schema.check(rolling_update(**spec), ROLLINGUPDATE)
    assert (cause.field, cause.message) == (field, NOT_NEGATIVE)


@pytest.mark.parametrize("field", ["new", "desired", "minimum"])
def test_what_a_rolling_update_must_have(field: str) -> None:
    document = rolling_update(**{field: None})
    assert [cause.field for cause in validate(document, None, ROLLINGUPDATE)] == [f"spec.{field}"]


def test_a_rolling_update_keeps_its_controllers() -> None:
    found = faults(ROLLINGUPDATE, rolling_update(new="web-3"), rolling_update())
    assert found == [("spec.new", 'Invalid value: "web-3": field is immutable')]


# --- driving a rollout ---------------------------------------------------------------------------


HISTORY = tuple(
    Revision(number, f"hash-{number}", {"spec": {"number": number}}) for number in (1, 2, 4)
)


def test_undo_returns_to_the_latest_other_template() -> None:
    assert rollouts.revision_to_undo(HISTORY, "hash-4").revision == 2
    assert rollouts.revision_to_undo(HISTORY, "hash-2").revision == 4
    assert rollouts.revision_to_undo(HISTORY, "hash-4", to=1).revision == 1


def test_undo_without_a_template_to_go_to_names_those_there_are() -> None:
    with pytest.raises(NoSuchRevision, match=r"revision 3 .*: 1, 2, 4"):
        rollouts.revision_to_undo(HISTORY, "hash-4", to=3)
    with pytest.raises(NoSuchRevision, match=r"earlier template .*: none"):
        rollouts.revision_to_undo((), "hash-4")


def test_pause_and_restart_are_merge_patches() -> None:
    assert rollouts.pause_patch(paused=True) == {"spec": {"rollout": {"paused": True}}}
    annotations = rollouts.restart_patch("now")["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {rollouts.RESTARTED_AT: "now"}


def test_replicas_are_bounded_but_what_is_stored_stays() -> None:
    [cause] = REPLICATIONCONTROLLER.validate(controller(replicas=100_001), None)
    assert (cause.field, cause.message) == (
        "spec.replicas",
        "Invalid value: 100001: must be less than or equal to 100000",
    )
    stored = controller(replicas=200_000)
    assert REPLICATIONCONTROLLER.validate(stored, stored) == []
    assert REPLICATIONCONTROLLER.validate(controller(replicas=150_000), stored) == []
    assert REPLICATIONCONTROLLER.validate(controller(replicas=200_001), stored) != []
