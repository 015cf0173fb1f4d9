"""Objects that an earlier version stored keep their meaning under the names of this one."""

import msgspec
import pytest

from grange.api.kinds.auditevents import EVENTS
from grange.api.kinds.auditrecord import AUDITRECORD, AuditRecord
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.replication import after_transfer, is_count_after_transfer

NEW, OLD = "grange.dev/replicas-after-transfer", "grange.dev/replicas-left"
RECORD = {"metadata": {"name": "r", "namespace": "default"}}


def controller(**more: object) -> ReplicationController:
    document = {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "ReplicationController",
        "metadata": {"name": "web", "namespace": "default"},
        **more,
    }
    return msgspec.convert(document, ReplicationController)


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [({NEW: "2"}, True), ({OLD: "2"}, True), ({NEW: "3"}, False), ({OLD: "3"}, False), ({}, False)],
)
def test_count_after_transfer_reads_both_names(annotations: dict[str, str], expected: bool) -> None:
    giver = controller(metadata={"name": "web", "annotations": annotations})
    assert is_count_after_transfer(giver, 2) is expected


def test_next_transfer_removes_the_old_annotation() -> None:
    assert after_transfer(4) == {NEW: "4", OLD: None}


def test_outbox_entry_of_an_earlier_version_is_converted() -> None:
    outbox = [{"id": "a", "event": "Retarget"}, {"id": "b", "event": "Unheard"}]
    entries = controller(status={"outbox": outbox}).status.outbox
    assert [entry.event for entry in entries] == ["MembershipChanged", "Unheard"]
    assert msgspec.to_builtins(entries[0])["event"] == "MembershipChanged"


def test_audit_record_of_an_earlier_version_is_converted() -> None:
    stored = {**RECORD, "spec": {"event": "Retarget", "controller": "web"}}
    assert msgspec.convert(stored, AuditRecord).spec.event == "MembershipChanged"


@pytest.mark.parametrize("event", [*EVENTS, "Retarget"])
def test_audit_record_accepts_current_and_old_events(event: str) -> None:
    document = {**RECORD, "spec": {"event": event, "controller": "web"}}
    assert AUDITRECORD.validate is not None
    assert AUDITRECORD.validate(document, None) == []
