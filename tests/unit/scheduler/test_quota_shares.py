"""What queues of a cohort may use together and each for itself, over any sequence of requests.

Here a queue's share is its capacity, and what others leave unused may be borrowed; nothing is divided
up by weights, so there is no water to fill. These are the books alone: who has to go so that a queue
gets back what it lent is the matter of ``gangs.reclaim``.
"""

from hypothesis import given, settings, strategies as st

from grange.scheduler.gangs.quotas import Grant, Quotas

NAMES = ("a", "b", "c")
steps = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(1, 6), st.booleans()), min_size=1, max_size=40
)


@settings(max_examples=80, deadline=None)
@given(
    capacities=st.tuples(*[st.integers(0, 10)] * 3),
    borrowing=st.one_of(st.none(), st.integers(0, 10)),
    asked=steps,
)
def test_check_121_shares_add_up_and_each_is_guaranteed(
    capacities: tuple[int, ...], borrowing: int | None, asked: list[tuple[str, int, bool]]
) -> None:
    """All together never use more than they have, nor any more than it has and may borrow.

    And its own is refused to none while no other borrows.
    """
    quotas, capacity = Quotas(), dict(zip(NAMES, capacities, strict=True))
    for name in NAMES:
        limit = None if borrowing is None else {"cpu": borrowing}
        quotas.grant(name, Grant({"cpu": capacity[name]}, "cohort", limit or {}))
    used: dict[str, list[tuple[str, int]]] = {name: [] for name in NAMES}
    total = sum(capacity.values())

    def use(name: str) -> int:
        return sum(amount for _, amount in used[name])

    for number, (name, amount, gives_back) in enumerate(asked):
        if gives_back and used[name]:
            quotas.release(used[name].pop(0)[0])
            continue
        within = use(name) + amount <= capacity[name]
        others_borrow = any(use(other) > capacity[other] for other in NAMES if other != name)
        refused = quotas.refusal(name, {"cpu": amount})
        if within and not others_borrow:
            assert not refused, "its own share is not refused"
        if not refused:
            uid = f"u{number}"
            quotas.charge(uid, name, {"cpu": amount})
            used[name].append((uid, amount))
        assert sum(map(use, NAMES)) <= total
        if borrowing is not None:
            assert all(use(item) <= capacity[item] + borrowing for item in NAMES)
        assert {item: quotas.used(item).get("cpu", 0) for item in NAMES} == {
            item: use(item) for item in NAMES
        }
