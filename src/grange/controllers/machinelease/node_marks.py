"""The marks of a lease on a node, as patches that fail unless the node is as it was read."""

import msgspec

from grange.api.kinds.machinelease import (
    DIRTY,
    HOLDER_ANNOTATION,
    LEASED,
    MACHINE_LEASE,
    STATE_ANNOTATION,
)
from grange.api.kinds.node import Node, Taint
from grange.api.meta import Document, preconditions


def marked(node: Node, lease: str, holder: str) -> Document:
    """The node belongs to a lease."""
    taint = Taint(MACHINE_LEASE, "NoSchedule", lease)
    return _patch(node, lease, holder, LEASED, (*_others(node), taint))


def unmarked(node: Node) -> Document:
    """The node belongs to no lease."""
    return _patch(node, None, None, None, _others(node))


def dirty(node: Node) -> Document:
    """The node waits until it is cleaned."""
    return {
        "metadata": {
            **preconditions(node.metadata),
            "annotations": {STATE_ANNOTATION: DIRTY},
        }
    }


def _others(node: Node) -> tuple[Taint, ...]:
    return tuple(taint for taint in node.spec.taints if taint.key != MACHINE_LEASE)


def _patch(
    node: Node, lease: str | None, holder: str | None, state: str | None, taints: tuple[Taint, ...]
) -> Document:
    return {
        "metadata": {
            **preconditions(node.metadata),
            "labels": {MACHINE_LEASE: lease},
            "annotations": {HOLDER_ANNOTATION: holder, STATE_ANNOTATION: state},
        },
        "spec": {"taints": [msgspec.to_builtins(taint) for taint in taints]},
    }
