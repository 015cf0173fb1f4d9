"""NodeAffinity in words: which labels of the selector a node lacks."""

from collections.abc import Collection
from dataclasses import replace
from functools import partial

import numpy as np

from grange.placement import kernels
from grange.placement.columns import Integers, Mask
from grange.placement.nodeaffinity import NAME_FIELD, Affinity, Requirement, Term
from grange.scheduler.explain.explanation import ExplanationInputs, Remedy, altered
from grange.scheduler.nodeinfo import PodInfo

_SYMBOLS = {"Gt": ">", "Lt": "<"}
_SHOWN = 3


def _requirement(item: Requirement) -> str:
    if item.key == NAME_FIELD and item.operator == "In" and len(item.values) == 1:
        return f"node {item.values[0]}"
    match item.operator:
        case "Exists":
            return f"label {item.key}"
        case "DoesNotExist":
            return f"no label {item.key}"
        case "In" if len(item.values) == 1:
            return f"{item.key}={item.values[0]}"
        case "In" | "NotIn":
            some = ", ".join(item.values[:_SHOWN]) + (", …" if len(item.values) > _SHOWN else "")
            return f"{item.key} {'not ' if item.operator == 'NotIn' else ''}in ({some})"
        case _:
            return f"{item.key} {_SYMBOLS.get(item.operator, item.operator)} {item.values[0]}"


def _term(term: Term) -> str:
    return " and ".join(_requirement(item) for item in (*term.labels, *term.names)) or "nothing"


def terms_in_words(terms: tuple[Term, ...]) -> str:
    """Required terms of node affinity."""
    some = " or ".join(_term(term) for term in terms[:_SHOWN])
    return some + (" or …" if len(terms) > _SHOWN else "")


def _without(info: PodInfo, pairs: Collection[tuple[str, str]], *, required: bool) -> PodInfo:
    """The pod without pairs of its selector, and without its required terms if they go, too."""
    had = info.affinity
    left = tuple(pair for pair in had.selector if pair not in pairs)
    terms = None if required else had.required
    return altered(info, affinity=replace(had, selector=left, required=terms))


class NodeLabels:
    """The node selector and the required terms must hold."""

    def __init__(self, inputs: ExplanationInputs) -> None:
        self._inputs = inputs
        table, rows, affinity = (
            inputs.snapshot.table,
            inputs.snapshot.table.all,
            inputs.pod.affinity,
        )
        self._pairs = affinity.selector
        parts: list[Mask] = [
            ~kernels.matches(table, rows, Affinity((pair,))) for pair in self._pairs
        ]
        self._required = affinity.required
        if self._required is not None:
            parts.append(~kernels.matches(table, rows, Affinity((), self._required)))
        self._unmet = np.stack(parts) if parts else np.zeros((1, len(inputs.refused)), np.bool_)
        self.lacks: Integers = np.where(inputs.refused, self._unmet.sum(axis=0), 0).astype(np.int64)
        self.severity = inputs.nothing()

    def missing(self, row: int) -> list[str]:
        """Each pair of the selector, and the terms as a whole."""
        said = []
        for at, (key, value) in enumerate(self._pairs):
            if self._unmet[at, row]:
                have = self._inputs.label(row, key)
                said.append(
                    f"no label {key}={value}" if have is None else f"{key} is {have}, not {value}"
                )
        if self._required is not None and self._unmet[-1, row]:
            said.append(f"not {terms_in_words(self._required)}")
        return said

    def changes(self, rows: Integers) -> list[Remedy]:
        """Leave out what the nodes lack."""
        found = []
        sets, of_row = np.unique(self._unmet[:, rows], axis=1, return_inverse=True)
        of_row = of_row.reshape(-1)
        for at in range(sets.shape[1]):
            lacking = np.flatnonzero(sets[:, at]).tolist()
            pairs = [self._pairs[part] for part in lacking if part < len(self._pairs)]
            told = ", ".join(f"{key}={value}" for key, value in pairs)
            dropped = [f"its nodeSelector does without {told}"] if told else []
            if len(self._pairs) in lacking:
                dropped.append("it drops its required node affinity")
            # Fewer demands leave open whatever meets the rest, too.
            unmet = np.delete(self._unmet[:, rows], lacking, axis=0).any(axis=0)
            change = partial(_without, pairs=pairs, required=len(self._pairs) in lacking)
            text, cost = " and ".join(dropped), 0.5 + 0.3 * len(lacking)
            found.append(Remedy(text, rows[~unmet], cost, change=change))
        return sorted(found, key=lambda item: (item.cost, -len(item.rows)))
