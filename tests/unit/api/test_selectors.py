"""Selectors: what they match, how they read back, and where they are wrong."""

import pytest
from hypothesis import given, settings, strategies as st

from grange.api.meta import LabelSelector, SelectorRequirement
from grange.api.selectors import (
    FieldRequirement,
    Fields,
    Labels,
    Requirement,
    SelectorError,
)

KEYS = st.sampled_from(["a", "b", "app", "example.com/role"])
VALUES = st.sampled_from(["", "1", "2", "x", "front-end", "10"])
LABELS = st.dictionaries(KEYS, VALUES)


@st.composite
def requirements(draw: st.DrawFn) -> Requirement:
    key = draw(KEYS)
    operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]))
    if operator in ("Exists", "DoesNotExist"):
        return Requirement(key, operator)
    if operator in ("Gt", "Lt"):
        return Requirement(key, operator, (str(draw(st.integers(0, 20))),))
    values = draw(st.sets(VALUES, min_size=1))
    return Requirement(key, operator, tuple(sorted(values)))


SELECTORS = st.lists(requirements(), max_size=4).map(Labels)


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("", {}, True),
        ("a=1", {"a": "1"}, True),
        ("a==1", {"a": "2"}, False),
        ("a=", {"a": ""}, True),
        ("a=", {}, False),
        ("a!=1", {}, True),
        ("a!=1", {"a": "1"}, False),
        ("a in (1,2)", {"a": "2"}, True),
        ("a in (1,2)", {}, False),
        ("a notin (1,2)", {"a": "3"}, True),
        ("a notin (1,2)", {}, True),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("!a", {}, True),
        ("a>1", {"a": "2"}, True),
        ("a>1", {"a": "1"}, False),
        ("a<10", {"a": "9"}, True),
        ("a<10", {"a": "x"}, False),
        ("a>5", {"a": "0000000000000000000006"}, True),
        ("a<0000000000000000000006", {"a": "5"}, True),
        ("a>5", {"a": "9223372036854775808"}, False),
        ("a=1,b!=2", {"a": "1", "b": "3"}, True),
        (" a = 1 , b ", {"a": "1", "b": ""}, True),
        ("in=notin", {"in": "notin"}, True),
    ],
)
def test_labels_match_as_kubectl_writes_them(
    text: str, labels: dict[str, str], matches: bool
) -> None:
    assert Labels.parse(text).matches(labels) is matches


@settings(max_examples=200, deadline=None)
@given(SELECTORS, LABELS)
def test_labels_read_back_as_they_were(selector: Labels, labels: dict[str, str]) -> None:
    again = Labels.parse(str(selector))
    assert again == selector
    assert hash(again) == hash(selector)
    assert again.matches(labels) is selector.matches(labels)


@settings(max_examples=200, deadline=None)
@given(SELECTORS, SELECTORS, LABELS)
def test_labels_are_a_conjunction(a: Labels, b: Labels, labels: dict[str, str]) -> None:
    both = Labels((*a.requirements, *b.requirements))
    assert both.matches(labels) is (a.matches(labels) and b.matches(labels))


@settings(max_examples=100, deadline=None)
@given(requirements(), LABELS)
def test_labels_agree_with_their_requirements(item: Requirement, labels: dict[str, str]) -> None:
    assert Labels([item]).matches(labels) is item.matches(labels)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab=!<>(), innot/.x", max_size=20))
def test_labels_either_parse_or_name_the_place(text: str) -> None:
    selector, error = None, ""
    try:
        selector = Labels.parse(text)
    except SelectorError as refused:
        error = str(refused)
    assert selector is None or Labels.parse(str(selector)) == selector
    assert selector is not None or "position" in error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=b,", 'expected a label key but found "the end" at position 4'),
        ("=x", 'expected a label key but found "=" at position 0'),
        ("a b", 'expected =, !=, in, notin, > or < but found "b" at position 2'),
        ("a in x", 'expected "(" but found "x" at position 5'),
        ("a in (x", 'expected "," or ")" but found "the end" at position 7'),
        ("a=b=c", 'expected "," but found "=" at position 3'),
        ("a>x", '">" needs an integer, not "x" at position 2'),
        ("-a=b", 'label key "-a": name part must consist'),
        ("a=b c", 'expected "," but found "c" at position 4'),
        ("a=" + "x" * 64, "must be no more than 63 characters"),
        ("a=" + "x" * 20_000, "longer than 16384 characters"),
    ],
)
def test_label_selector_errors_name_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(SelectorError) as raised:
        Labels.parse(text)
    assert message in str(raised.value)


def test_labels_of_reads_views_and_documents_alike() -> None:
    view = LabelSelector(
        match_labels={"b": "2", "a": "1"},
        match_expressions=(SelectorRequirement(key="c", operator="NotIn", values=("x", "y")),),
    )
    document = {
        "matchLabels": {"a": "1", "b": "2"},
        "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["x", "y"]}],
    }
    assert Labels.of(view) == Labels.of(document)
    assert str(Labels.of(view)) == "a=1,b=2,c notin (x,y)"


def test_missing_selector_matches_nothing_and_empty_everything() -> None:
    assert not Labels.of(None).matches({})
    assert not Labels.of(None).empty
    assert Labels.of({}).matches({"a": "1"})
    assert Labels.of(LabelSelector()).empty
    assert Labels(nothing=True) != Labels()
    assert repr(Labels(nothing=True)) == "Labels(nothing)"


@pytest.mark.parametrize(
    "expression", [{"key": "a"}, {"key": "", "operator": "In"}, {"key": "a", "operator": "Gt"}]
)
def test_labels_of_refuses_broken_expressions(expression: dict[str, str]) -> None:
    with pytest.raises(SelectorError, match="needs a key and one of the operators"):
        Labels.of({"matchExpressions": [expression]})


FIELD_TEXT = st.text(alphabet="ab,=\\! x", max_size=8)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.builds(
            FieldRequirement,
            st.sampled_from(["spec.nodeName", "status.phase"]),
            FIELD_TEXT,
            st.booleans(),
        ),
        max_size=3,
    )
)
def test_fields_read_back_as_they_were(items: list[FieldRequirement]) -> None:
    fields = Fields(items)
    assert Fields.parse(str(fields)).requirements == fields.requirements


def test_fields_match_through_a_reader() -> None:
    held = {"spec.nodeName": "n1", "status.phase": "Running"}

    def read(path: str) -> str:
        return held.get(path, "")

    assert Fields.parse("spec.nodeName=n1,status.phase!=Failed").matches(read)
    assert not Fields.parse("spec.nodeName==n2").matches(read)
    assert Fields.parse("spec.other=").matches(read)
    assert Fields.parse("").empty


def test_fields_name_their_paths_and_fixed_values() -> None:
    fields = Fields.parse("a=1,b!=2,a=1")
    assert fields.paths == ("a", "b")
    assert fields.exact("a") == "1"
    assert fields.exact("b") is None
    assert repr(fields) == "Fields('a=1,b!=2,a=1')"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", 'expected path=value or path!=value but found "a" at position 0'),
        ("a=1,b", 'found "b" at position 4'),
        ("a=b=c", 'must be escaped as "\\="'),
        ("a=b\\x", '"\\x" is no escape'),
        ("a=" + "x" * 20_000, "longer than 16384 characters"),
    ],
)
def test_field_selector_errors_name_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(SelectorError) as raised:
        Fields.parse(text)
    assert message in str(raised.value)
