"""PreFilter plugins together: who ends the cycle, who only narrows it down."""

from dataclasses import dataclass, field

import pytest

from grange.scheduler import plugins
from grange.scheduler.cache import Cache
from grange.scheduler.diagnosis import EVERY_NODE, Diagnosis, Narrowed, pre_filter
from grange.scheduler.framework import (
    SUCCESS,
    Code,
    CycleState,
    Plugin,
    PreFilterResult,
    Profile,
    Status,
)
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot
from grange.sim import builders


@dataclass
class Answer:
    """Answers as set and remembers that it was asked."""

    result: PreFilterResult
    asked: int = field(default=0)

    def for_each(self, pod: PodInfo) -> bool:
        return True

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeInfoSnapshot
    ) -> PreFilterResult:
        self.asked += 1
        return self.result


def answer(code: Code, *reasons: str) -> Answer:
    return Answer(PreFilterResult(Status(code, reasons)))


def names(*wanted: str) -> Answer:
    return Answer(PreFilterResult(SUCCESS, frozenset(wanted)))


def ask(*answers: Answer, nodes: int = 3) -> Narrowed | Diagnosis:
    """What comes of these plugins' answers, P0, P1, … in this order."""
    mine = [Plugin(f"P{at}", pre_filter=item) for at, item in enumerate(answers)]
    others = [item for item in plugins.DEFAULT if item.queue_sort or item.bind]
    cache, snapshot = Cache(), NodeInfoSnapshot()
    for number in range(nodes):
        cache.add_node(builders.node(f"n{number}"))
    cache.update_node_info_snapshot(snapshot)
    profile = Profile([*others, *mine])
    return pre_filter(profile, CycleState(), PodInfo.of(builders.pod("p")), snapshot)


def test_check_115_a_plain_refusal_keeps_the_others_going() -> None:
    """They may leave what a preemption needs to know; the first refusal is the answer."""
    first, second = answer(Code.UNSCHEDULABLE, "no"), answer(Code.UNSCHEDULABLE, "neither")
    last = answer(Code.SUCCESS)
    found = ask(first, second, last)
    assert isinstance(found, Diagnosis)
    assert (found.pre_filter, found.plugins, found.error) == ("no", frozenset({"P0"}), False)
    assert [item.asked for item in (first, second, last)] == [1, 1, 1]


def test_check_115_an_unresolvable_refusal_ends_it() -> None:
    first, second = answer(Code.UNRESOLVABLE, "never"), answer(Code.SUCCESS)
    found = ask(first, second)
    assert isinstance(found, Diagnosis)
    assert found.pre_filter == "never"
    assert (first.asked, second.asked) == (1, 0)
    late = ask(answer(Code.UNSCHEDULABLE, "no"), answer(Code.UNRESOLVABLE, "never"))
    assert isinstance(late, Diagnosis)
    assert (late.pre_filter, late.plugins) == ("never", frozenset({"P1"}))


def test_check_115_an_error_ends_it_as_an_error() -> None:
    found = ask(answer(Code.ERROR, "broken"), answer(Code.SUCCESS))
    assert isinstance(found, Diagnosis)
    assert found.error


@pytest.mark.parametrize("code", [Code.SUCCESS, Code.SKIP])
def test_check_115_a_plugin_that_skips_narrows_nothing(code: Code) -> None:
    assert ask(answer(code)) == EVERY_NODE


def test_check_115_named_nodes_are_intersected() -> None:
    found = ask(names("n0", "n1"), answer(Code.SUCCESS), names("n1", "n2"))
    assert found == Narrowed(frozenset({"n1"}), ("P0", "P2"))


def test_check_115_disjoint_names_leave_nothing() -> None:
    """No pods are in the way, so removing some would not help: the plugin that named them is shown."""
    found = ask(names("n0"), names("n1"))
    assert isinstance(found, Diagnosis)
    assert found.plugins == frozenset({"P0", "P1"})
    assert "simultaneously" in found.pre_filter
    assert not found.error


def test_check_115_without_nodes_no_plugin_is_asked() -> None:
    first = answer(Code.SUCCESS)
    found = ask(first, nodes=0)
    assert isinstance(found, Diagnosis)
    assert found.message == "no nodes available to schedule pods"
    assert first.asked == 0


def test_message_lists_every_reason_up_to_its_bound() -> None:
    counts = tuple((f"reason {number:03}", 1) for number in range(300))
    message = Diagnosis(300, counts).message
    assert message.count("1 reason ") == 256
    assert message.endswith("44 for other reasons.")


def test_message_ends_with_preemption() -> None:
    found = Diagnosis(2, (("Insufficient cpu", 2),), nominated="n", post_filter="no.")
    assert found.message == (
        "0/2 nodes are available: 2 Insufficient cpu. Nominated to n. preemption: no."
    )
