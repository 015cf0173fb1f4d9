"""Sharing: even, stable, and with as few moves as evenness allows."""

from hypothesis import given, settings, strategies as st

from grange.reconcile.farm.hashing import assign, score

ITEMS = st.integers(min_value=0, max_value=60).map(lambda n: [f"default/s{i}" for i in range(n)])
MEMBERS = st.sets(st.sampled_from([f"m{i}" for i in range(7)]), min_size=1)
quick = settings(max_examples=150, deadline=None)


def loads(assigned: dict[str, str], members: set[str]) -> list[int]:
    return [sum(owner == member for owner in assigned.values()) for member in sorted(members)]


@quick
@given(ITEMS, MEMBERS, st.data())
def test_everybody_has_the_same_but_for_one(
    items: list[str], members: set[str], data: st.DataObject
) -> None:
    anybody = st.sampled_from([*sorted(members), "", "gone"])
    holders = {item: data.draw(anybody) for item in items}
    assigned = assign(holders, members)
    assert set(assigned) == set(items)
    assert set(assigned.values()) <= members
    each = loads(assigned, members)
    assert max(each) - min(each) <= 1


@quick
@given(ITEMS, MEMBERS, st.data())
def test_as_few_items_move_as_evenness_allows(
    items: list[str], members: set[str], data: st.DataObject
) -> None:
    holders = {item: data.draw(st.sampled_from(sorted(members))) for item in items}
    assigned = assign(holders, members)
    moved = sum(assigned[item] != holders[item] for item in items)
    floor, larger = divmod(len(items), len(members))
    each = sorted(loads(holders, members), reverse=True)
    surplus = [max(0, n - floor - (place < larger)) for place, n in enumerate(each)]
    assert moved == sum(surplus), "none can do with less"


@quick
@given(ITEMS, MEMBERS)
def test_what_is_even_stays(items: list[str], members: set[str]) -> None:
    settled = assign(dict.fromkeys(items, ""), members)
    assert assign(settled, members) == settled


@quick
@given(ITEMS, MEMBERS)
def test_newcomer_takes_only_its_share(items: list[str], members: set[str]) -> None:
    settled = assign(dict.fromkeys(items, ""), members)
    after = assign(settled, members | {"new"})
    moved = [item for item in items if after[item] != settled[item]]
    assert all(after[item] == "new" for item in moved)
    assert len(moved) <= -(-len(items) // (len(members) + 1))


@quick
@given(ITEMS, MEMBERS)
def test_leaver_moves_only_what_it_had(items: list[str], members: set[str]) -> None:
    settled = assign(dict.fromkeys(items, ""), members | {"leaver"})
    after = assign(settled, members)
    assert all(after[i] == settled[i] for i in items if settled[i] != "leaver")


@quick
@given(ITEMS, MEMBERS)
def test_one_item_more_moves_nothing_and_one_less_at_most_one(
    items: list[str], members: set[str]
) -> None:
    settled = assign(dict.fromkeys(items, ""), members)
    more = assign({**settled, "default/new": ""}, members)
    assert {item: more[item] for item in items} == settled
    if items:
        fewer = {item: owner for item, owner in settled.items() if item != items[0]}
        moved = [item for item, owner in assign(fewer, members).items() if owner != fewer[item]]
        assert len(moved) <= 1


@quick
@given(ITEMS, MEMBERS, st.randoms(use_true_random=False))
def test_order_of_the_view_does_not_matter(
    items: list[str], members: set[str], random: object
) -> None:
    shuffled = list(items)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis' own
    assert assign(dict.fromkeys(items, ""), members) == assign(dict.fromkeys(shuffled, ""), members)


def test_without_members_none_has_anything() -> None:
    assert assign({"a": ""}, []) == {}


def test_score_depends_on_member_and_item_only() -> None:
    assert score("a", "x") == score("a", "x")
    assert score("a", "x") != score("b", "x")
    assert score("a", "bx") != score("ab", "x"), "the two do not run together"
