"""Which nodes a pod may and would like to run on: nodeSelector and node affinity.

A pod's terms are compiled once into an immutable value that is evaluated for one node (scalar) and that
``kernels`` evaluates for all nodes from label columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from grange.api import names
from grange.api.kinds.pod import NodeAffinity, NodeSelectorTerm, PodSpec, SelectorRequirement
from grange.api.selectors import as_integer

NAME_FIELD = "metadata.name"


@dataclass(frozen=True, slots=True)
class NodeRequirement:
    """``key operator values`` over labels."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """All of the requirements over labels and names; an empty term matches nothing."""

    labels: tuple[NodeRequirement, ...] = ()
    names: tuple[NodeRequirement, ...] = ()


@dataclass(frozen=True, slots=True)
class PreferredNodes:
    """A preferred term."""

    weight: int
    term: NodeTerm


@dataclass(frozen=True, slots=True)
class NodeRules:
    """A pod's demands and preferences about nodes; equal values choose alike.

    Attributes:
        selector: nodeSelector, sorted.
        required: any of these terms must match; None demands nothing, empty matches nothing.
        preferred: each matching term adds its weight.
        fault: what is wrong with a preferred term that cannot be evaluated; empty if nothing is.
    """

    selector: tuple[tuple[str, str], ...] = ()
    required: tuple[NodeTerm, ...] | None = None
    preferred: tuple[PreferredNodes, ...] = ()
    fault: str = ""

    @property
    def demands(self) -> bool:
        """Whether any node can be refused."""
        return bool(self.selector) or self.required is not None


NONE = NodeRules()


def _requirement(item: SelectorRequirement) -> NodeRequirement:
    return NodeRequirement(item.key, item.operator, tuple(item.values))


def _term(term: NodeSelectorTerm) -> NodeTerm:
    return NodeTerm(
        tuple(_requirement(item) for item in term.match_expressions),
        tuple(_requirement(item) for item in term.match_fields),
    )


def _requirement_fault(item: SelectorRequirement) -> str:
    """Why a requirement on labels cannot be evaluated (apimachinery's labels.NewRequirement)."""
    values = item.values
    match item.operator:
        case "In" | "NotIn" if not values:
            return f"values: must not be empty for operator {item.operator}"
        case "Exists" | "DoesNotExist" if values:
            return f"values: must be empty for operator {item.operator}"
        case "Gt" | "Lt" if len(values) != 1 or as_integer(values[0]) is None:
            return f"values: must be one integer for operator {item.operator}"
        case "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt":
            pass
        case _:
            return (
                f'operator: "{item.operator}" is not one of In, NotIn, Exists, DoesNotExist, Gt, Lt'
            )
    if fault := names.check_qualified_name(item.key):
        return f"key: {fault}"
    for at, value in enumerate(values):
        if fault := names.check_label_value(value):
            return f"values[{at}]: {fault}"
    return ""


def _labels_fault(term: NodeSelectorTerm) -> str:
    for at, item in enumerate(term.match_expressions):
        if fault := _requirement_fault(item):
            return f"matchExpressions[{at}].{fault}"
    return ""


def _term_fault(term: NodeSelectorTerm) -> str:
    if fault := _labels_fault(term):
        return fault
    for at, item in enumerate(term.match_fields):
        if item.operator not in ("In", "NotIn") or len(item.values) != 1:
            return f"matchFields[{at}]: needs operator In or NotIn and one value"
    return ""


def of_pod(spec: PodSpec) -> NodeRules:
    """The pod's node selector and node affinity, compiled."""
    node_affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if node_affinity is None:
        return NodeRules(tuple(sorted(spec.node_selector.items()))) if spec.node_selector else NONE
    found = of_terms(node_affinity)
    return replace(found, selector=tuple(sorted(spec.node_selector.items())))


def of_terms(given: NodeAffinity) -> NodeRules:
    """Required and preferred terms, compiled."""
    must = given.required_during_scheduling_ignored_during_execution
    should = given.preferred_during_scheduling_ignored_during_execution
    # A required term that cannot be evaluated matches nothing, as an empty one.
    required = None
    if must is not None:
        terms = must.node_selector_terms
        required = tuple(NodeTerm() if _labels_fault(term) else _term(term) for term in terms)
    faults = [
        f"preferredDuringSchedulingIgnoredDuringExecution[{at}].preference.{fault}"
        for at, item in enumerate(should)
        if item.weight and (fault := _term_fault(item.preference))
    ]
    return NodeRules(
        (),
        required,
        tuple(
            PreferredNodes(item.weight, _term(item.preference)) for item in should if item.weight
        ),
        faults[0] if faults else "",
    )


def _compare(requirement: NodeRequirement, value: str | None) -> bool:
    if value is None or len(requirement.values) != 1:
        return False
    have, want = as_integer(value), as_integer(requirement.values[0])
    if have is None or want is None:
        return False
    return have > want if requirement.operator == "Gt" else have < want


def matches_value(requirement: NodeRequirement, value: str | None) -> bool:
    """Whether a label's value (None: no such label) satisfies the requirement."""
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compare(requirement, value)
        case _:
            return False


def matches_term(term: NodeTerm, name: str, labels: Mapping[str, str]) -> bool:
    """Whether the node satisfies the whole term."""
    if not term.labels and not term.names:
        return False
    return all(matches_value(item, labels.get(item.key)) for item in term.labels) and all(
        item.key == NAME_FIELD and matches_value(item, name) for item in term.names
    )


def matches(affinity: NodeRules, name: str, labels: Mapping[str, str]) -> bool:
    """Whether the node satisfies the selector and any of the required terms."""
    if any(labels.get(key) != value for key, value in affinity.selector):
        return False
    if affinity.required is None:
        return True
    return any(matches_term(term, name, labels) for term in affinity.required)


def preference(affinity: NodeRules, name: str, labels: Mapping[str, str]) -> int:
    """The sum of the weights of the preferred terms that the node satisfies."""
    return sum(item.weight for item in affinity.preferred if matches_term(item.term, name, labels))


def required_names(affinity: NodeRules) -> frozenset[str] | None:
    """The only nodes that can match, when every required term names its nodes; else None."""
    if affinity.required is None:
        return None
    union: set[str] = set()
    for term in affinity.required:
        allowed: set[str] | None = None
        for item in term.names:
            if item.key == NAME_FIELD and item.operator == "In":
                named = set(item.values)
                allowed = named if allowed is None else allowed & named
        if allowed is None:
            return None
        union |= allowed
    return frozenset(union)
