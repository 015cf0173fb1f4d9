"""One pod against many nodes at once: each function equals the scalar one.

``rows`` is a slice (views, no copying) or an array of row numbers. Results are as long as ``rows``
and in its order. Invalid rows give arbitrary values; callers mask them.
"""

from collections.abc import Sequence

import numpy as np

from grange.api.kinds.pod import Toleration
from grange.api.pod_requests import PODS, PodRequest
from grange.placement import node_rules, taint_toleration
from grange.placement.columns import ABSENT, Integers, Mask, NodeTable, Rows
from grange.placement.node_rules import NodeRequirement, NodeRules, NodeTerm
from grange.placement.node_usage import asked_amounts
from grange.placement.resource_fit import TOO_MANY_PODS, insufficient


def count(table: NodeTable, rows: Rows) -> int:
    """How many rows are meant."""
    return len(table.valid[rows])


def most(values: Integers, among: Mask) -> int:
    """The largest of these values, which are not negative; 0 among none.

    A product is several times as quick as ``max`` with ``where``.
    """
    return int((values * among).max(initial=0))


def fits(table: NodeTable, rows: Rows, request: PodRequest) -> Mask:
    """Where the pod fits."""
    total, used = table.amounts(PODS, rows)
    mask: Mask = used < total
    for name, amount in asked_amounts(request.resources):
        total, used = table.amounts(name, rows)
        mask &= total - used >= amount
    return mask


def fit_reasons(table: NodeTable, rows: Rows, request: PodRequest) -> list[tuple[str, Mask]]:
    """For every reason that occurs, where it does."""
    total, used = table.amounts(PODS, rows)
    found: list[tuple[str, Mask]] = [(TOO_MANY_PODS, used >= total)]
    for name, amount in asked_amounts(request.resources):
        total, used = table.amounts(name, rows)
        found.append((insufficient(name), total - used < amount))
    return [(reason, mask) for reason, mask in found if mask.any()]


def untainted(table: NodeTable, rows: Rows, tolerations: Sequence[Toleration]) -> Mask:
    """Where no taint keeps the pod away."""
    by_set = np.fromiter(
        (
            taint_toleration.first_untolerated(item, tolerations) is None
            for item in table.taint_sets
        ),
        np.bool_,
        len(table.taint_sets),
    )
    return by_set[table.taint_set[rows]]


def _satisfied(table: NodeTable, rows: Rows, requirement: NodeRequirement) -> Mask:
    column = table.labels(requirement.key)
    # One verdict for every distinct value, and a last one, which index -1 reaches, for none.
    verdicts = np.empty(len(column.values) + 1, np.bool_)
    verdicts[ABSENT] = node_rules.matches_value(requirement, None)
    if requirement.operator in {"In", "NotIn"}:
        inside = requirement.operator == "In"
        verdicts[:-1] = not inside
        for value in requirement.values:
            number = column.numbers.get(value)
            if number is not None:
                verdicts[number] = inside
    else:
        verdicts[:-1] = [node_rules.matches_value(requirement, item) for item in column.values]
    return verdicts[column.ids[rows]]


def _named(table: NodeTable, rows: Rows, requirement: NodeRequirement) -> Mask:
    inside = requirement.operator == "In"
    known = requirement.key == node_rules.NAME_FIELD and requirement.operator in {"In", "NotIn"}
    mask: Mask = np.full(table.size, known and not inside, np.bool_)
    if known:
        for value in requirement.values:
            row = table.rows.get(value)
            if row is not None:
                mask[row] = inside
        return mask[rows]
    matching = [
        requirement.key == node_rules.NAME_FIELD and node_rules.matches_value(requirement, name)
        for name in table.names
    ]
    return np.asarray(matching, np.bool_)[rows]


def matches_term(table: NodeTable, rows: Rows, term: NodeTerm) -> Mask:
    """Where the whole term is satisfied."""
    if not term.labels and not term.names:
        return np.zeros(count(table, rows), np.bool_)
    mask: Mask = np.ones(count(table, rows), np.bool_)
    for requirement in term.labels:
        mask &= _satisfied(table, rows, requirement)
    for requirement in term.names:
        mask &= _named(table, rows, requirement)
    return mask


def matches(table: NodeTable, rows: Rows, affinity: NodeRules) -> Mask:
    """Where the selector and any required term are satisfied."""
    mask: Mask = np.ones(count(table, rows), np.bool_)
    for key, value in affinity.selector:
        column = table.labels(key)
        number = column.numbers.get(value)
        if number is None:
            mask[:] = False
        else:
            mask &= column.ids[rows] == number
    if affinity.required is not None:
        allowed: Mask = np.zeros(len(mask), np.bool_)
        for term in affinity.required:
            allowed |= matches_term(table, rows, term)
        mask &= allowed
    return mask


def preference(table: NodeTable, rows: Rows, affinity: NodeRules) -> Integers:
    """The sum of the weights of the preferred terms that each node satisfies."""
    total: Integers = np.zeros(count(table, rows), np.int64)
    for item in affinity.preferred:
        total += item.weight * matches_term(table, rows, item.term)
    return total
