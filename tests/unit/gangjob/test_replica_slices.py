"""Replicas by role and by index, and which of several is kept."""

from collections.abc import Sequence
from typing import TypeVar

import pytest
from hypothesis import given, strategies as st
from tests.support.render_operator import LABELS

from grange.api.kinds.pod import Pod
from grange.api.kinds.service import Service
from grange.api.meta import ObjectMeta, Resource
from grange.base.log import Logger
from grange.controllers.gangjob.replica_slices import (
    OVERFLOW_LIMIT,
    best_replica,
    filter_for_replica_type,
    replica_slices,
)

R = TypeVar("R", bound=Resource)
LOG = Logger("test")


def replica(
    view: type[R], name: str, index: str | None, role: str = "frame", **meta: str | None
) -> R:
    labels = {LABELS.role: role}
    if index is not None:
        labels[LABELS.index] = index
    return view(metadata=ObjectMeta(name=name, uid=name, labels=labels, **meta))  # type: ignore[arg-type]  # texts only


def names(objects: Sequence[Resource]) -> str:
    return " ".join(obj.metadata.name for obj in objects)


def test_check_6_filter_keeps_a_role_in_order() -> None:
    pods = [replica(Pod, name, "0", role) for name, role in zip("abcd", "xyxz", strict=True)]
    assert names(filter_for_replica_type(LABELS, pods, "X")) == "a c"
    assert names(filter_for_replica_type(LABELS, pods, "w")) == ""
    assert names(filter_for_replica_type(LABELS, [Pod()], "x")) == ""


@pytest.mark.parametrize("view", [Pod, Service])
@pytest.mark.parametrize(
    ("indexes", "replicas", "count"),
    [("012", 3, 3), ("012", 4, 4), ("012", 2, 3), ("0124", 3, 5), ("", 0, 0)],
)
def test_check_7_slices_reach_the_highest_index(
    view: type[Resource], indexes: str, replicas: int, count: int
) -> None:
    objects = [replica(view, index, index) for index in indexes]
    slices = replica_slices(LABELS, objects, replicas, LOG)
    assert len(slices) == count
    assert [names(found) for found in slices] == [
        str(index) if str(index) in indexes else "" for index in range(count)
    ]


def test_check_8_without_overflow_only_indexes_below_replicas() -> None:
    labels = ("0", "1", "3", "-1", "x", "1", None, "")
    pods = [replica(Pod, f"p{at}", index) for at, index in enumerate(labels)]
    slices = replica_slices(LABELS, pods, 3, LOG, overflow=False)
    assert [names(found) for found in slices] == ["p0", "p1 p5", ""]


def test_check_8_absurd_index_makes_no_slices() -> None:
    pods = [replica(Pod, "p", str(2 + OVERFLOW_LIMIT)), replica(Pod, "q", "9" * 63)]
    assert replica_slices(LABELS, pods, 2, LOG) == [[], []]


@given(st.lists(st.integers(min_value=-3, max_value=40)), st.integers(min_value=0, max_value=20))
def test_slices_hold_each_usable_object_once(indexes: list[int], replicas: int) -> None:
    pods = [replica(Pod, str(at), str(index)) for at, index in enumerate(indexes)]
    slices = replica_slices(LABELS, pods, replicas, LOG)
    usable = [index for index in indexes if index >= 0]
    assert len(slices) == max([replicas, *(index + 1 for index in usable)])
    for number, found in enumerate(slices):
        assert names(found) == " ".join(str(at) for at, i in enumerate(indexes) if i == number)


def test_best_replica_stays_then_ready_then_oldest() -> None:
    going = replica(Pod, "a", "0", deletion_timestamp="now", creation_timestamp="1")
    old = replica(Pod, "b", "0", creation_timestamp="2")
    new = replica(Pod, "c", "0", creation_timestamp="3")
    ready = {"a", "c"}
    for found in ([going, old, new], [new, old, going]):
        assert best_replica(found, lambda pod: pod.metadata.name in ready) is new
        assert best_replica(found, lambda pod: pod.metadata.name == "a") is old
    assert best_replica([going], lambda _: False) is going
