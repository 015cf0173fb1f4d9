"""The bounded dict."""

from hypothesis import given, strategies as st

from grange.base.bounded import BoundedDict, Recent


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


def test_recent_keeps_to_its_bounds() -> None:
    """The last few are kept, and never more than twice as many, in number and in bytes."""
    kept: Recent[int, bytes] = Recent(3, max_bytes=100)
    for key in range(7):
        kept.put(key, b"xx", 2)
        assert all(kept.get(last) == b"xx" for last in range(max(0, key - 2), key + 1))
    assert [kept.get(key) for key in range(7)] == [None, None, None, *[b"xx"] * 4]
    for key in range(10, 20):
        assert kept.put(key, b"x" * 60, 60) == b"x" * 60
        assert kept.get(key) == b"x" * 60
        assert len(kept) <= 6
    assert len(kept) == 2
