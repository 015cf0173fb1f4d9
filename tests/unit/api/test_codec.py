"""What is read from the network: exactly, within bounds, and with the place of every fault."""

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from grange.api import codec, yaml_documents
from grange.api.kinds.pod import Pod
from grange.api.meta import ObjectMeta
from grange.api.status import BadRequest, TooLarge, UnsupportedMediaType

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(max_size=8), JSON, max_size=4))
def test_documents_read_back_as_they_were(document: dict[str, Any]) -> None:
    assert codec.decode_document(codec.encode(document)) == document
    assert codec.clone(document) == document


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=40) | st.text(alphabet='{}[]",:12ae ', max_size=40).map(str.encode))
def test_any_bytes_are_a_document_or_a_bad_request(body: bytes) -> None:
    for media in ("application/json", "application/yaml"):
        try:
            found = codec.decode_document(body, media)
        except (BadRequest, TooLarge):
            continue
        assert isinstance(found, dict)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is empty; send a JSON object"),
        (b"[1]", "expected a JSON object, got a list"),
        (b"null", "expected a JSON object, got null"),
        (b"true", "expected a JSON object, got a boolean"),
        (b"1", "expected a JSON object, got a number"),
        (b'"a"', "expected a JSON object, got a string"),
        (b'{"a":\n "b" x}', "at line 2, column 6"),
        (b'{"a": NaN}', "invalid character at line 1, column 7"),
        (b"{", "cannot read the body as JSON: Input data was truncated"),
        (b'{"a":"\xff"}', "cannot read the body as JSON"),
        (b'{"a":1e999}', "cannot read the body as JSON"),
        (b'{"a":' * 70 + b"1" + b"}" * 70, "the document nests deeper than 64 levels"),
        (b'{"a":' + b"[" * 100_000, "the document nests deeper than 64 levels"),
    ],
)
def test_broken_json_is_refused_with_its_place(body: bytes, message: str) -> None:
    with pytest.raises(BadRequest) as raised:
        codec.decode_document(body)
    assert message in raised.value.message


def test_depth_is_allowed_up_to_the_bound() -> None:
    body = b'{"a":' * codec.DEPTH_MAX + b"1" + b"}" * codec.DEPTH_MAX
    assert codec.decode_document(body)
    wide: dict[str, Any] = {"a": [{} for _ in range(100)]}
    assert codec.decode_document(codec.encode(wide)) == wide


def test_other_media_types_are_unsupported() -> None:
    with pytest.raises(UnsupportedMediaType, match="reads JSON and YAML, not"):
        codec.decode_document(b"k8s\0", "application/vnd.kubernetes.protobuf")
    assert codec.decode_document(b"{}", "") == {}
    assert codec.decode_document(b"{}", "application/merge-patch+json; charset=utf-8") == {}


def test_yaml_bodies_hold_one_document() -> None:
    assert codec.decode_document(b"a: 1", "application/yaml") == {"a": 1}
    with pytest.raises(BadRequest, match="expected one YAML document in the body, found 2"):
        codec.decode_document(b"a: 1\n---\nb: 1", "application/yaml")


def test_views_skip_what_they_do_not_name() -> None:
    body = b'{"metadata":{"name":"a","strange":[1]},"spec":{"nodeName":"n"},"other":{}}'
    view = codec.decode_view(body, Pod)
    assert (view.metadata.name, view.spec.node_name) == ("a", "n")
    document = codec.to_document(view)
    assert document == {"metadata": {"name": "a"}, "spec": {"nodeName": "n"}, "status": {}}
    assert codec.convert(codec.decode_document(body), Pod) == view


def test_views_refuse_wrong_types() -> None:
    with pytest.raises(BadRequest, match="cannot read a Pod: Expected `str`"):
        codec.decode_view(b'{"metadata":{"name":1}}', Pod)
    with pytest.raises(BadRequest, match="cannot read a ObjectMeta"):
        codec.convert({"labels": []}, ObjectMeta)
    with pytest.raises(BadRequest, match="cannot read the body as JSON"):
        codec.decode_view(b"{", Pod)


def test_yaml_reads_as_the_tools_of_the_field_do() -> None:
    text = """
a: 0644
b: 0o644
c: 0x1F
d: 1_000
e: 22:22
f: 1e3
g: .5
h: -1
i: 2026-01-01
j: on
k: ~
l: 1.2.3
m: "08"
n: 0b11
1: x
true: y
null: z
o: {<<: {p: 1, q: 1}, p: 2}
"""
    assert codec.load_yaml_documents(text) == [
        {
            "a": 420,
            "b": 420,
            "c": 31,
            "d": 1000,
            "e": "22:22",
            "f": 1000.0,
            "g": 0.5,
            "h": -1,
            "i": "2026-01-01",
            "j": True,
            "k": None,
            "l": "1.2.3",
            "m": "08",
            "n": 3,
            "1": "x",
            "true": "y",
            "null": "z",
            "o": {"p": 2, "q": 1},
        }
    ]


def test_yaml_streams_may_have_empty_documents() -> None:
    assert codec.load_yaml_documents("a: 1\n---\n\n---\n# nothing\n---\nb: 2\n") == [
        {"a": 1},
        {"b": 2},
    ]
    assert codec.load_yaml_documents("") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", 'the key "a" appears twice at line 3, column 1'),
        ("a:\n  b: {c: 1, c: 2}", 'the key "c" appears twice at line 2, column 13'),
        ("a: [1,\n b: }", "at line 2, column 5"),
        ("a: 1\n\tb: 2", "at line 2, column 1"),
        ("- 1", "expected every YAML document to be a mapping, got a list"),
        ("? [a]\n: b", "a YAML key must be plain text at line 1, column 3"),
        ("a: .inf", '".inf" is not a number that JSON has at line 1, column 4'),
        ("a: 1e999", '"1e999" is not a number that JSON has'),
        ("a: !!python/object:os.system x", "could not determine a constructor for the tag"),
        ("a: !!timestamp 2001-01-01", "could not determine a constructor for the tag"),
        ("a: !!binary aGk=", "could not determine a constructor for the tag"),
        ("a: *b", "undefined alias"),
        ("a: \x00", "cannot read the YAML"),
        ("a: &x [*x]", "nests deeper than 64 levels"),
        ("- " * 100 + "x", "nests deeper than 64 levels at line 1"),
        ("a: " + "[" * 100_000, "nests deeper than 64 levels at line 1"),
        ("{a: " * 100_000, "nests deeper than 64 levels at line 1"),
    ],
)
def test_broken_yaml_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(BadRequest) as raised:
        codec.load_yaml_documents(text)
    assert message in raised.value.message


def test_yaml_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(BadRequest, match="cannot read the YAML"):
        codec.load_yaml_documents(b"a: \xff\xfe\xfd")


def test_yaml_aliases_cannot_blow_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_documents, "NODES_MAX", 10_000)
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    with pytest.raises(TooLarge, match="stands for more than 10000 values"):
        codec.load_yaml_documents("\n".join(lines))


def test_yaml_is_bounded_in_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_documents, "SIZE_MAX", 100)
    with pytest.raises(TooLarge, match="larger than 100 bytes"):
        codec.load_yaml_documents("a: " + "x" * 100)


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        (b'{"a":1}', ()),
        (b'{"a":1}\n', ()),
        (b'{ "a": [ {"a": 1}, {"a": 1} ] }', ()),
        (b'{"a":1,"a":1}', ("a",)),
        (b'{"a":1,"\\u0061":2,"a":3}', ("a",)),
        (b'{"a": {"b": [0, {"c": 1, "d": {}, "c": 2}]}, "a": 0}', ("a.b[1].c", "a")),
        (b'[{"b": 1, "b": 2}, 3]', ("[0].b",)),
        (b'{"a": "\\"a\\": 1, \\"a\\": 2"}', ()),
    ],
)
def test_duplicate_fields_are_found(body: bytes, paths: tuple[str, ...]) -> None:
    found = codec.duplicate_fields(body, codec.decode_any(body))
    assert sorted(found) == sorted(paths)


def test_duplicate_fields_are_bounded() -> None:
    body = b"{" + b",".join(b'"k%d": 1' % (number % 500) for number in range(1000)) + b"}"
    assert len(codec.duplicate_fields(body, codec.decode_any(body))) == codec.DUPLICATES_MAX
    long = b'{"a": 1, "a": "' + b"x" * codec.DUPLICATES_BODY_MAX_BYTES + b'"}'
    assert codec.duplicate_fields(long, codec.decode_any(long)) == ()


STRINGS = st.sampled_from(['"a"', '"b"', '"\\u0061"', '"\\":"', '"\\u0022:"', '"a\\": b"', '":"'])
COLONS = st.sampled_from([":", " :", ": ", "\n:"])


def members(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pair = st.tuples(STRINGS, COLONS, inner).map("".join)
    return st.lists(pair, max_size=4).map(lambda pairs: "{" + ",".join(pairs) + "}")


DUPLICATED = st.recursive(STRINGS, members, max_leaves=12)


@settings(max_examples=300, deadline=None)
@given(DUPLICATED)
def test_duplicate_fields_equal_a_full_search(text: str) -> None:
    """Counting keys settles most bodies without a search; it never misses one."""
    found: dict[str, None] = {}
    codec._find_duplicates(json.loads(text, object_pairs_hook=codec._Pairs), "", found)
    body = text.encode()
    assert codec.duplicate_fields(body, codec.decode_any(body)) == tuple(found)


def test_body_with_spaces_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """What json.dumps of Python writes; the search costs more than decoding."""
    body = json.dumps({"a": {"b": [1, {"c": 'd": e'}]}, "f": None}).encode()
    monkeypatch.setattr(codec, "_check_unique", None)
    assert codec.duplicate_fields(body, codec.decode_any(body)) == ()
