"""Node selectors and affinity, one node at a time."""

import msgspec
import pytest

from grange.api.kinds.pod import PodSpec
from grange.placement import node_rules
from grange.placement.node_rules import NodeRequirement, NodeTerm


def affinity(**fields: object) -> node_rules.NodeRules:
    return node_rules.of_pod(msgspec.convert({"affinity": {"nodeAffinity": fields}}, PodSpec))


@pytest.mark.parametrize(
    ("operator", "values", "value", "answer"),
    [
        ("In", ("a", "b"), "b", True),
        ("In", ("a",), None, False),
        ("NotIn", ("a",), "b", True),
        ("NotIn", ("a",), None, True),
        ("NotIn", ("a",), "a", False),
        ("Exists", (), "", True),
        ("Exists", (), None, False),
        ("DoesNotExist", (), None, True),
        ("DoesNotExist", (), "x", False),
        ("Gt", ("5",), "6", True),
        ("Gt", ("5",), "5", False),
        ("Lt", ("5",), "-6", True),
        ("Lt", ("5",), "x", False),
        ("Gt", ("x",), "6", False),
        ("Gt", ("1", "2"), "6", False),
        ("Gt", ("5",), None, False),
        ("Gt", ("5",), "99999999999999999999", False),
        ("Gt", ("5",), "0000000000000000000006", True),
        ("Lt", ("0000000000000000000006",), "5", True),
        ("Gt", ("5",), "+0000000000000000000006", True),
        ("Gt", ("5",), "9223372036854775807", True),
        ("Gt", ("5",), "9223372036854775808", False),
        ("Lt", ("5",), "-9223372036854775808", True),
        ("Gt", ("5",), "1_0", False),
        ("Gt", ("5",), "+", False),
        ("Near", ("a",), "a", False),
    ],
)
def test_requirement_decides_by_operator(
    operator: str, values: tuple[str, ...], value: str | None, answer: bool
) -> None:
    assert node_rules.matches_value(NodeRequirement("k", operator, values), value) is answer


def affinity_of(kind: str, **requirement: object) -> node_rules.NodeRules:
    term = {"matchExpressions": [{"key": "k", **requirement}]}
    body: object = {"nodeSelectorTerms": [term]}
    if kind.startswith("preferred"):
        body = [{"weight": 1, "preference": term}]
    found = {"nodeAffinity": {f"{kind}DuringSchedulingIgnoredDuringExecution": body}}
    return node_rules.of_pod(msgspec.convert({"affinity": found}, PodSpec))


@pytest.mark.parametrize(
    ("requirement", "fault"),
    [
        ({"operator": "Gt", "values": ["x"]}, "values: must be one integer for operator Gt"),
        ({"operator": "Lt", "values": ["1", "2"]}, "values: must be one integer for operator Lt"),
        ({"operator": "In", "values": []}, "values: must not be empty for operator In"),
        ({"operator": "Exists", "values": ["x"]}, "values: must be empty for operator Exists"),
        ({"operator": "NotIn", "values": ["a", "b c"]}, "values[1]: "),
        ({"operator": "Near"}, "operator: "),
        ({"operator": "Exists", "key": "-"}, "key: "),
        ({"operator": "In", "values": ["a"]}, ""),
    ],
)
def test_term_that_cannot_be_evaluated_names_its_field(
    requirement: dict[str, object], fault: str
) -> None:
    found = affinity_of("preferred", **requirement).fault
    path = "preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0]."
    assert found.startswith(path + fault) if fault else not found
    required = affinity_of("required", **requirement)
    assert not required.fault
    assert node_rules.matches(required, "n", {"k": "a"}) is (fault == "")


def test_selector_and_any_required_term_must_match() -> None:
    spec = msgspec.convert(
        {
            "nodeSelector": {"disk": "ssd"},
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "z", "operator": "In", "values": ["1"]}]},
                            {
                                "matchFields": [
                                    {"key": "metadata.name", "operator": "In", "values": ["n9"]}
                                ]
                            },
                        ]
                    }
                }
            },
        },
        PodSpec,
    )
    found = node_rules.of_pod(spec)
    assert node_rules.matches(found, "n1", {"disk": "ssd", "z": "1"})
    assert node_rules.matches(found, "n9", {"disk": "ssd"})
    assert not node_rules.matches(found, "n9", {"disk": "hdd"})
    assert not node_rules.matches(found, "n1", {"disk": "ssd", "z": "2"})


def test_an_empty_term_and_an_empty_list_of_terms_match_nothing() -> None:
    must = "requiredDuringSchedulingIgnoredDuringExecution"
    assert not node_rules.matches(affinity(**{must: {"nodeSelectorTerms": []}}), "n", {})
    assert not node_rules.matches(affinity(**{must: {"nodeSelectorTerms": [{}]}}), "n", {})
    assert node_rules.matches(node_rules.NONE, "n", {})


def test_preferred_terms_add_their_weights() -> None:
    should = "preferredDuringSchedulingIgnoredDuringExecution"
    found = affinity(
        **{
            should: [
                {
                    "weight": 3,
                    "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                },
                {
                    "weight": 4,
                    "preference": {"matchExpressions": [{"key": "b", "operator": "Exists"}]},
                },
                {
                    "weight": 0,
                    "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                },
                {"weight": 9, "preference": {}},
            ]
        }
    )
    assert node_rules.preference(found, "n", {"a": "", "b": ""}) == 7
    assert node_rules.preference(found, "n", {"b": ""}) == 4
    assert node_rules.preference(found, "n", {}) == 0


def test_required_names_need_every_term_to_name_them() -> None:
    def name_in(*names: str) -> NodeTerm:
        return NodeTerm(names=(NodeRequirement("metadata.name", "In", names),))

    def terms(*found: NodeTerm) -> node_rules.NodeRules:
        return node_rules.NodeRules(required=found)

    assert node_rules.required_names(terms(name_in("a"), name_in("b"))) == frozenset({"a", "b"})
    both = NodeTerm(names=(*name_in("a", "b").names, *name_in("b", "c").names))
    assert node_rules.required_names(terms(both)) == frozenset({"b"})
    labelled = NodeTerm(labels=(NodeRequirement("k", "Exists"),))
    assert node_rules.required_names(terms(name_in("a"), labelled)) is None
    assert node_rules.required_names(node_rules.NONE) is None
