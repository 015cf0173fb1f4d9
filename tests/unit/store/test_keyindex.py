"""The sorted key index against a sorted list."""

from hypothesis import given, settings, strategies as st

from grange.store.keyindex import KeyIndex, prefix_end

ALPHABET = "ab/é\ud7ff\U0010ffff"
keys = st.text(alphabet=ALPHABET, min_size=1, max_size=5)
texts = st.text(alphabet=ALPHABET, max_size=5)


@settings(max_examples=300, deadline=None)
@given(
    start=st.sets(keys),
    changes=st.lists(keys),
    queries=st.lists(st.tuples(texts, texts), min_size=1, max_size=5),
)
def test_index_equals_a_sorted_list(
    start: set[str], changes: list[str], queries: list[tuple[str, str]]
) -> None:
    index, model = KeyIndex(start), set(start)
    for key in changes:
        if key in model:
            index.remove(key)
            model.remove(key)
        else:
            index.add(key)
            model.add(key)
    assert len(index) == len(model)
    for prefix, after in [("", ""), *queries]:
        expected = sorted(key for key in model if key.startswith(prefix) and key > after)
        assert list(index.under(prefix, after)) == expected
        assert index.count(prefix, after) == len(expected)


@settings(max_examples=300, deadline=None)
@given(prefix=texts, key=texts)
def test_prefix_end_is_behind_every_key_with_the_prefix(prefix: str, key: str) -> None:
    end = prefix_end(prefix)
    assert key.startswith(prefix) == (key >= prefix and (end is None or key < end))


def test_prefix_end_has_none_behind_the_last_character() -> None:
    assert prefix_end("") is None
    assert prefix_end("\U0010ffff") is None
    assert prefix_end("a\U0010ffff") == "b"
