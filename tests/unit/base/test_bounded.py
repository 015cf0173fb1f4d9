"""The bounded dict."""

from hypothesis import given, strategies as st

from grange.base.bounded import BoundedDict


@given(st.integers(1, 5), st.lists(st.integers(0, 9)))
def test_bounded_dict_holds_the_newest_within_its_limit(limit: int, keys: list[int]) -> None:
    cache: BoundedDict[int, int] = BoundedDict(limit)
    for at, key in enumerate(keys):
        cache[key] = at
        assert cache[key] == at
        assert len(cache) <= limit


def test_bounded_dict_keeps_all_when_a_known_key_is_set() -> None:
    cache: BoundedDict[str, int] = BoundedDict(2)
    cache["a"], cache["b"] = 1, 2
    cache["a"] = 3
    assert cache == {"a": 3, "b": 2}
