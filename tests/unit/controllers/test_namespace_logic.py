"""What a terminating namespace reports."""

from grange.api import conditions
from grange.controllers.namespace import logic


def test_conditions_name_what_remains_and_what_holds_it() -> None:
    remains = logic.Remains({"pods": 2, "configmaps": 0}, {"example.com/hold": 1}, ["secrets: no"])
    stated = logic.conditions_of([], remains, "2026-01-01T00:00:00Z")
    assert not remains.empty
    content = conditions.find(stated, logic.CONTENT_REMAINING)
    held = conditions.find(stated, logic.FINALIZERS_REMAINING)
    failed = conditions.find(stated, logic.DELETION_FAILURE)
    assert content is not None
    assert content.message == "Some resources are remaining: pods has 2 resource instances"
    assert held is not None
    assert "example.com/hold has 1" in held.message
    assert failed is not None
    assert (failed.status, failed.message) == ("True", "secrets: no")


def test_conditions_stay_equal_when_nothing_changes() -> None:
    remains = logic.Remains({"pods": 1}, {})
    stated = logic.conditions_of([], remains, "2026-01-01T00:00:00Z")
    assert logic.conditions_of(stated, remains, "2026-01-02T00:00:00Z") == stated


def test_an_empty_namespace_without_failures_may_go() -> None:
    assert logic.Remains({"pods": 0}, {}).empty
    assert not logic.Remains({}, {}, ["pods: timeout"]).empty
