"""A single pod that waits for quota: those who come later do not take what frees forever."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st
from tests.support.gang_cluster import Bench, names
from tests.unit.scheduler.test_quotas import BIG, CPU, in_queue

from grange.scheduler.gangs.quotas import Amounts
from grange.scheduler.gangs.wait_line import QuotaWaiters


@pytest.mark.parametrize("important", [0, 5], ids=["alike", "claims-first"])
def test_small_pods_cannot_starve_a_large_one_of_quota(important: int) -> None:
    """Each of them takes the room of one that ends, and there is never enough for the large one."""
    bench = Bench(overtakes=4)
    bench.nodes("a", capacity=BIG)
    bench.quota("q", cpu="10")
    live = names("s", 10)
    bench.pods(*live, labels=in_queue("q"), requests=CPU)
    bench.run(1.0)
    bench.pods("large", labels=in_queue("q"), requests={"cpu": "8"}, priority=important)
    bench.run(1.0)
    for second in range(10, 60):
        bench.pods(f"s{second}", labels=in_queue("q"), requests=CPU)
        bench.gone(next(name for name in live if name in bench.where))
        bench.run(1.0)
        live.append(f"s{second}")
        if "large" in bench.where:
            break
    assert "large" in bench.where
    small = [name for name in bench.order[: bench.order.index("large")] if name.startswith("s")]
    # Four may overtake; further ones only next to the claim: 2 of the 10.
    assert len(small) <= 10 + 4 + 2


def _wanting(*, overtakes: int = 2) -> Bench:
    """The pod ``large`` claims most of the queue ``q``, and ``late`` waits for that."""
    bench = Bench(overtakes=overtakes)
    bench.nodes("a", capacity=BIG)
    bench.quota("q", cpu="10")
    bench.quota("r", cpu="10")
    bench.pods("fill", labels=in_queue("q"), requests={"cpu": "4"})
    bench.run(1.0)
    bench.pods("large", labels=in_queue("q"), requests={"cpu": "8"})
    bench.run(1.0)
    bench.now += 1.0
    bench.pods("s0", "s1", "late", labels=in_queue("q"), requests=CPU)
    bench.run(1.0)
    assert set(bench.where) == {"fill", "s0", "s1"}
    return bench


def test_a_large_pod_has_what_it_claimed_and_claims_no_more() -> None:
    bench = _wanting()
    assert bench.why["late"] == "over quota of queue q: cpu 15 of 10, borrowing none"
    bench.gone("fill")
    assert set(bench.run(3.0)) == {"large", "s0", "s1"}
    bench.gone("large")
    assert set(bench.run(3.0)) == {"late", "s0", "s1"}
    bench.pods("more", labels=in_queue("q"), requests={"cpu": "7"})
    assert "more" in bench.run(1.0)


def test_the_claim_of_a_pod_that_goes_goes_with_it() -> None:
    ways: tuple[Callable[[Bench], None], ...] = (
        lambda bench: bench.gone("large"),
        lambda bench: bench.terminate("large"),  # held by a finalizer, maybe for long
        lambda bench: bench.relabel("large", ""),
        lambda bench: bench.relabel("large", "", in_queue("r")),
        lambda bench: bench.relabel("large", "g"),
    )
    for leave in ways:
        bench = _wanting()
        leave(bench)
        assert "late" in bench.run(3.0)


def test_a_waiting_pod_that_names_another_queue_is_tried_there() -> None:
    bench = _wanting()
    bench.relabel("large", "", in_queue("r"))
    assert "large" in bench.run(0.0)
    assert bench.gangs.quotas.used("r")["cpu"] == 8_000


def test_unplaceable_pod_claims_nothing_once_its_queue_has_room() -> None:
    """No node would do, whatever its queue admits: others must not wait for it."""
    bench = Bench(overtakes=2)
    bench.nodes("a", capacity=BIG)
    bench.quota("q", cpu="10")
    bench.pods("fill", labels=in_queue("q"), requests={"cpu": "4"})
    bench.run(1.0)
    bench.pods("large", labels=in_queue("q"), requests={"cpu": "8"}, nodeSelector={"no": "where"})
    bench.run(1.0)
    bench.now += 1.0
    bench.pods("s0", "s1", "late", labels=in_queue("q"), requests=CPU)
    bench.run(1.0)
    assert "late" not in bench.where
    bench.gone("fill")
    bench.pods("more", labels=in_queue("q"), requests={"cpu": "6"})
    assert set(bench.run(3.0)) == {"s0", "s1", "late", "more"}


def test_a_gang_that_never_fits_keeps_no_other_from_claiming() -> None:
    bench = Bench(overtakes=2)
    bench.nodes("a", capacity=BIG)
    bench.quota("q", cpu="10")
    bench.pods("never", labels=in_queue("q"), requests={"cpu": "11"})
    bench.group("g", 11, queue="q")
    bench.pods(*names("g", 11), gang="g", requests=CPU)
    bench.pods("fill", labels=in_queue("q"), requests={"cpu": "4"})
    bench.run(1.0)
    bench.pods("large", labels=in_queue("q"), requests={"cpu": "8"})
    bench.run(1.0)
    bench.now += 1.0
    bench.pods(*names("s", 3), labels=in_queue("q"), requests=CPU)
    assert set(bench.run(1.0)) == {"fill", "s0", "s1"}
    bench.gone("fill")
    assert set(bench.run(1.0)) == {"large", "s0", "s1"}
    bench.quota("q", cpu="20")  # now it can
    bench.pods(*names("t", 3), labels=in_queue("q"), requests={"cpu": "100m"})
    assert set(bench.run(1.0)) == {"large", "s0", "s1", "t0", "t1"}


def kept(waiters: QuotaWaiters) -> tuple[int, int]:
    """Of how many queues something is kept, and how many entries in all."""
    return len(waiters._lines), sum(map(len, waiters._lines.values()))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "drop", "grant"]),
            st.integers(0, 5),
            st.sampled_from(["q", "r"]),
            st.integers(1, 9),
            st.integers(0, 4),
        ),
        max_size=60,
    )
)
def test_the_first_is_the_least_of_all_who_could_be_admitted(
    steps: list[tuple[str, int, str, int, int]],
) -> None:
    """Against looking at all of them, while they come, go, move and hope."""
    most = {"q": 5, "r": 5}
    waiters = QuotaWaiters(lambda queue, wanted: wanted["cpu"] > most[queue])
    model: dict[str, tuple[str, int, tuple[float, float]]] = {}
    for at, (what, number, queue, cpu, rank) in enumerate(steps):
        owner = f"o{number}"
        if what == "put":
            place = (0.0, rank + number / 10)
            model[owner] = (queue, cpu, place)
            assert waiters.put(owner, queue, {"cpu": cpu}, place).owner == owner
        elif what == "drop":
            model.pop(owner, None)
            waiters.drop(owner)
        else:
            most[queue] = cpu
        for queues in (("q",), ("r",), ("q", "r")):
            able = [
                (place, name)
                for name, (of, wanted, place) in model.items()
                if of in queues and wanted <= most[of]
            ]
            found = waiters.first(queues)
            assert (found and found.owner) == (min(able)[1] if able else None), at
        assert kept(waiters)[0] == len({of for of, _, _ in model.values()}), at


def test_thousands_who_come_and_go_leave_nothing_behind() -> None:
    """A pod that waits, is admitted, finds no node and waits again enters the line each time."""
    looked = 0

    def impossible(queue: str, wanted: Amounts) -> bool:
        nonlocal looked
        looked += 1
        return False

    waiters = QuotaWaiters(impossible)
    waiters.put("first", "q", {}, (0.0, 0.0))
    for number in range(5_000):
        waiters.put("o", "q", {}, (0.0, 1.0 + number % 2))
        assert (found := waiters.first(["q"])) is not None
        assert found.owner == "first"
        waiters.drop("o")
    assert looked == 5_000
    assert kept(waiters)[1] < 200


def test_queues_without_waiting_pods_leave_nothing_behind() -> None:
    """Their names are whatever pods contain, and may be new ones every time."""
    waiters = QuotaWaiters(lambda queue, wanted: wanted["cpu"] > 1)
    for number in range(1_000):
        waiters.put("leaves", f"q{number}", {"cpu": 1}, (0.0, 0.0))
        waiters.put("hopeless", f"r{number}", {"cpu": 2}, (0.0, 0.0))
        waiters.put("moves", f"s{number}", {"cpu": 1}, (0.0, 0.0))
        assert waiters.first([f"r{number}"]) is None
        waiters.drop("leaves")
        waiters.drop("hopeless")
    assert kept(waiters) == (1, 1)
    waiters.drop("moves")
    assert kept(waiters) == (0, 0)
