"""Rules of what decides where a pod runs: node selectors, tolerations, affinity, spreading."""

from collections.abc import Sequence, Sized
from typing import Any

from grange.api import names, selectors
from grange.api.validation.causes import Faults
from grange.api.validation.metadata import check_labels
from grange.api.validation.selectors import check_label_selector, check_requirement

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TOLERATION_OPERATORS = ("Equal", "Exists")
UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT_MAX = 100
_POLICIES = ("Honor", "Ignore")
# Every term is looked at for every pod that is placed; so many are never written by hand.
_TERMS_MAX = 256
_SPREADS_MAX = 64
_TOLERATIONS_MAX = 1024


def check_scheduling(spec: dict[str, Any], path: str, faults: Faults) -> None:
    """Every scheduling rule of a pod spec at ``path``."""
    if node_selector := spec.get("nodeSelector"):
        check_labels(node_selector, f"{path}.nodeSelector", faults)
    _check_count(spec.get("tolerations"), _TOLERATIONS_MAX, f"{path}.tolerations", faults)
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        check_toleration(toleration, f"{path}.tolerations[{index}]", faults)
    if affinity := spec.get("affinity"):
        _check_affinity(affinity, f"{path}.affinity", faults)
    if spreads := spec.get("topologySpreadConstraints"):
        _check_spreads(spreads, f"{path}.topologySpreadConstraints", faults)
    if gates := spec.get("schedulingGates"):
        taken: set[str] = set()
        for index, gate in enumerate(gates):
            at = f"{path}.schedulingGates[{index}].name"
            name = gate.get("name", "")
            faults.named(at, name, names.check_qualified_name(name))
            if name in taken:
                faults.duplicate(at, name)
            taken.add(name)


def check_toleration(toleration: dict[str, Any], path: str, faults: Faults) -> None:
    """Key, operator, value and effect of a toleration."""
    key = toleration.get("key", "")
    operator = toleration.get("operator") or "Equal"
    effect = toleration.get("effect", "")
    if key:
        if fault := names.check_qualified_name(key):
            faults.named(f"{path}.key", key, fault)
    elif operator != "Exists":
        message = "operator must be Exists when `key` is empty, which means all keys"
        faults.invalid(f"{path}.operator", operator, message)
    if operator not in TOLERATION_OPERATORS:
        faults.not_supported(f"{path}.operator", operator, TOLERATION_OPERATORS)
    elif operator == "Exists" and toleration.get("value"):
        message = "value must be empty when `operator` is Exists"
        faults.invalid(f"{path}.value", toleration["value"], message)
    elif operator == "Equal":
        value = toleration.get("value", "")
        if fault := names.check_label_value(value):
            faults.named(f"{path}.value", value, fault)
    if effect and effect not in EFFECTS:
        faults.not_supported(f"{path}.effect", effect, EFFECTS)
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        message = "effect must be NoExecute when `tolerationSeconds` is set"
        faults.invalid(f"{path}.effect", effect, message)


def check_taint(taint: dict[str, Any], path: str, faults: Faults) -> None:
    """Key, value and effect of a node's taint."""
    key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
    if not key:
        faults.required(f"{path}.key")
    else:
        faults.named(f"{path}.key", key, names.check_qualified_name(key))
    faults.named(f"{path}.value", value, names.check_label_value(value))
    if not effect:
        faults.required(f"{path}.effect")
    elif effect not in EFFECTS:
        faults.not_supported(f"{path}.effect", effect, EFFECTS)


def _check_affinity(affinity: dict[str, Any], path: str, faults: Faults) -> None:
    if node := affinity.get("nodeAffinity"):
        _check_node_affinity(node, f"{path}.nodeAffinity", faults)
    for field in ("podAffinity", "podAntiAffinity"):
        group = affinity.get(field) or {}
        for part in (_REQUIRED, _PREFERRED):
            _check_count(group.get(part), _TERMS_MAX, f"{path}.{field}.{part}", faults)
        for index, term in enumerate(group.get(_REQUIRED) or ()):
            _check_pod_term(term, f"{path}.{field}.{_REQUIRED}[{index}]", faults)
        for index, weighted in enumerate(group.get(_PREFERRED) or ()):
            at = f"{path}.{field}.{_PREFERRED}[{index}]"
            _check_weight(weighted, at, faults)
            _check_pod_term(weighted.get("podAffinityTerm") or {}, f"{at}.podAffinityTerm", faults)


def _check_node_affinity(affinity: dict[str, Any], path: str, faults: Faults) -> None:
    required = affinity.get(_REQUIRED)
    if required is not None:
        terms = required.get("nodeSelectorTerms") or ()
        at = f"{path}.{_REQUIRED}.nodeSelectorTerms"
        if not terms:
            faults.required(at, "must have at least one node selector term")
        _check_count(terms, _TERMS_MAX, at, faults)
        for index, term in enumerate(terms):
            _check_node_term(term, f"{at}[{index}]", faults)
    _check_count(affinity.get(_PREFERRED), _TERMS_MAX, f"{path}.{_PREFERRED}", faults)
    for index, weighted in enumerate(affinity.get(_PREFERRED) or ()):
        at = f"{path}.{_PREFERRED}[{index}]"
        _check_weight(weighted, at, faults)
        _check_node_term(weighted.get("preference") or {}, f"{at}.preference", faults)


def _check_node_term(term: dict[str, Any], path: str, faults: Faults) -> None:
    for index, item in enumerate(term.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{index}]"
        check_requirement(item, at, selectors.NODE_OPERATORS, faults)
    for index, item in enumerate(term.get("matchFields") or ()):
        at = f"{path}.matchFields[{index}]"
        if item.get("key") != "metadata.name":
            faults.not_supported(f"{at}.key", item.get("key", ""), ("metadata.name",))
        if item.get("operator") not in (selectors.IN, selectors.NOT_IN):
            choices = (selectors.IN, selectors.NOT_IN)
            faults.not_supported(f"{at}.operator", item.get("operator", ""), choices)
        elif len(item.get("values") or ()) != 1:
            message = "must be exactly one value when `operator` is 'In' or 'NotIn' for node fields"
            faults.required(f"{at}.values", message)


def _check_pod_term(term: dict[str, Any], path: str, faults: Faults) -> None:
    _check_topology_key(term, path, faults)
    for field in ("labelSelector", "namespaceSelector"):
        if selector := term.get(field):
            check_label_selector(selector, f"{path}.{field}", faults)
    for index, namespace in enumerate(term.get("namespaces") or ()):
        at = f"{path}.namespaces[{index}]"
        faults.named(at, namespace, names.check_dns_label(namespace))

    match, mismatch = term.get("matchLabelKeys") or (), term.get("mismatchLabelKeys") or ()
    _check_label_keys(term, match, f"{path}.matchLabelKeys", faults)
    _check_label_keys(term, mismatch, f"{path}.mismatchLabelKeys", faults)
    both = frozenset(mismatch)
    for index, key in enumerate(match):
        if key in both:
            message = "exists in both matchLabelKeys and mismatchLabelKeys"
            faults.invalid(f"{path}.matchLabelKeys[{index}]", key, message)


def _check_label_keys(item: dict[str, Any], keys: Sequence[str], path: str, faults: Faults) -> None:
    """Keys by which the pod's own labels narrow their selector."""
    if keys and item.get("labelSelector") is None:
        faults.forbidden(path, "must not be specified when labelSelector is not set")
    for index, key in enumerate(keys):
        faults.named(f"{path}[{index}]", key, names.check_qualified_name(key))


def _check_count(items: Sized | None, most: int, path: str, faults: Faults) -> None:
    if items is not None and len(items) > most:
        faults.too_long(path, f"must have at most {most} items, has {len(items)}")


def _check_topology_key(item: dict[str, Any], path: str, faults: Faults) -> None:
    key = item.get("topologyKey", "")
    if not key:
        faults.required(f"{path}.topologyKey", "can not be empty")
    else:
        faults.named(f"{path}.topologyKey", key, names.check_qualified_name(key))


def _check_weight(weighted: dict[str, Any], path: str, faults: Faults) -> None:
    weight = weighted.get("weight", 0)
    if not 1 <= weight <= _WEIGHT_MAX:
        faults.invalid(f"{path}.weight", weight, f"must be in the range 1-{_WEIGHT_MAX}")


def _check_spreads(spreads: list[dict[str, Any]], path: str, faults: Faults) -> None:
    taken: set[tuple[str, str]] = set()
    _check_count(spreads, _SPREADS_MAX, path, faults)
    for index, spread in enumerate(spreads):
        at = f"{path}[{index}]"
        if spread.get("maxSkew", 0) <= 0:
            faults.invalid(f"{at}.maxSkew", spread.get("maxSkew", 0), "must be greater than zero")
        _check_topology_key(spread, at, faults)
        action = spread.get("whenUnsatisfiable", "")
        if action not in UNSATISFIABLE:
            faults.not_supported(f"{at}.whenUnsatisfiable", action, UNSATISFIABLE)
        domains = spread.get("minDomains")
        if domains is not None and domains <= 0:
            faults.invalid(f"{at}.minDomains", domains, "must be greater than zero")
        elif domains is not None and action == "ScheduleAnyway":
            message = "can only use minDomains if whenUnsatisfiable=DoNotSchedule"
            faults.invalid(f"{at}.minDomains", domains, message)
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            policy = spread.get(field)
            if policy is not None and policy not in _POLICIES:
                faults.not_supported(f"{at}.{field}", policy, _POLICIES)
        _check_label_keys(
            spread, spread.get("matchLabelKeys") or (), f"{at}.matchLabelKeys", faults
        )
        if selector := spread.get("labelSelector"):
            check_label_selector(selector, f"{at}.labelSelector", faults)
        key = (spread.get("topologyKey", ""), action)
        if key in taken:
            faults.duplicate(at, f"{{{key[0]}, {key[1]}}}")
        taken.add(key)
