"""Conditions keep the time of their last transition."""

from grange.api import conditions
from grange.api.meta import Condition

READY = Condition(type="Ready", status="True", reason="Up", last_transition_time="t0")
OTHER = Condition(type="Other", status="False", last_transition_time="t0")


def test_set_condition_keeps_the_time_while_the_status_stays() -> None:
    new = Condition(type="Ready", status="True", reason="StillUp", message="m")
    held = conditions.set_condition([READY, OTHER], new, "t1")
    assert [(item.reason, item.last_transition_time) for item in held] == [
        ("StillUp", "t0"),
        ("", "t0"),
    ]


def test_set_condition_moves_the_time_when_the_status_changes() -> None:
    held = conditions.set_condition([OTHER, READY], Condition(type="Ready", status="False"), "t1")
    assert held == (OTHER, Condition(type="Ready", status="False", last_transition_time="t1"))


def test_set_condition_appends_type_and_keeps_the_others() -> None:
    before = [OTHER]
    held = conditions.set_condition(before, Condition(type="Ready", status="True"), "t1")
    assert [item.type for item in held] == ["Other", "Ready"]
    assert before == [OTHER]


def test_set_condition_twice_is_once() -> None:
    once = conditions.set_condition([], Condition(type="Ready", status="True"), "t1")
    assert conditions.set_condition(once, Condition(type="Ready", status="True"), "t2") == once


def test_find_and_is_true() -> None:
    assert conditions.find([READY], "Ready") is READY
    assert conditions.find([READY], "Other") is None
    assert conditions.is_true([READY, OTHER], "Ready")
    assert not conditions.is_true([READY, OTHER], "Other")
    assert not conditions.is_true([], "Ready")
