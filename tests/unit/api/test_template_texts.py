"""Texts cut from the bytes of a spec are put back, and found where they belong."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from grange.api.template_texts import HOSTNAME, NODE_NAME

TEXTS = st.sampled_from(("a", "b-1", "", "A", 'x"y', "a\\", "é", '"hostname":"a"'))
VALUES = st.recursive(
    TEXTS | st.none(),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(("hostname", "nodeName", "other")), inner, max_size=3)
    ),
    max_leaves=6,
)
SPECS = st.dictionaries(st.sampled_from(("hostname", "nodeName", "a", "z")), VALUES, max_size=4)


def encoded(spec: Any) -> bytes:
    return json.dumps(spec, separators=(",", ":")).encode()


@given(SPECS)
def test_cut_text_is_put_back_where_it_was(spec: dict[str, Any]) -> None:
    body = encoded(spec)
    if (found := HOSTNAME.cut(body)) is None:
        return
    rest, text = found
    assert HOSTNAME.fill(rest, text) == body
    if HOSTNAME.is_own(rest):
        assert json.loads(HOSTNAME.fill(rest, b"other")) == {**spec, "hostname": "other"}
    elif isinstance(own := spec.get("hostname"), str):
        assert json.loads(HOSTNAME.fill(rest, b"other"))["hostname"] == own


@given(st.lists(SPECS, min_size=2, max_size=2), TEXTS)
def test_specs_with_one_rest_differ_in_the_text_alone(specs: list[Any], text: str) -> None:
    first, second = ({**spec, "hostname": text} for spec in specs)
    cut = HOSTNAME.cut(encoded(first)), HOSTNAME.cut(encoded(second))
    if cut[0] is not None and cut[1] is not None and cut[0][0] == cut[1][0]:
        assert first == second


@pytest.mark.parametrize("text", ["", "A", "a" * 64, "-a", "a-", "a.b", "é", 'a"b'])
def test_host_name_that_is_no_label_is_not_cut(text: str) -> None:
    assert HOSTNAME.cut(encoded({"hostname": text})) is None


def test_text_of_something_within_is_not_the_specs_own() -> None:
    rests = [
        HOSTNAME.cut(encoded(spec))
        for spec in (
            {"hostname": "a"},
            {"nodeSelector": {"hostname": "a"}, "hostname": "b"},
            {"hostname": "b", "nodeSelector": {"hostname": "a"}},
            {"nodeSelector": {"hostname": "a"}},
        )
    ]
    assert [HOSTNAME.is_own(found[0]) for found in rests if found] == [True, True, False, False]


def test_what_is_left_is_no_json() -> None:
    body = encoded({"nodeName": "", "hostname": "h"})
    rest, text = NODE_NAME.cut(body) or (b"", b"missing")
    assert (text, b'"hostname":"h"' in rest) == (b"", True)
    with pytest.raises(json.JSONDecodeError):
        json.loads(rest)
