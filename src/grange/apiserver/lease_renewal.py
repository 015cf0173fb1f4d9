"""Renewals of Leases, most of the writes of a large cluster, without what is done for any other change.

A Lease was checked when it was written. A merge patch that only moves ``renewTime``, and values of annotations
that the Lease has, leaves nothing to check but these.
"""

import re
from collections.abc import Callable
from typing import Any

from grange.api import timestamps
from grange.api.meta import Document
from grange.api.patch.merge_patch import MergePatch

_MICRO_TIME = re.compile(timestamps.MICRO_TIME)
_PARTS = frozenset({"metadata", "spec"})


def renewed(old: Document, change: Callable[[Document], Document]) -> Document | None:
    """The Lease with the change made; None where it is not a mere renewal.

    Nothing of ``old`` is changed; what stays the same is shared with it.

    Args:
        old: the stored Lease.
        change: of it.
    """
    if not isinstance(change, MergePatch) or "deletionTimestamp" in old["metadata"]:
        return None
    patch = change.patch
    if not patch.keys() <= _PARTS:
        return None
    spec, meta = _spec(old.get("spec"), patch.get("spec")), patch.get("metadata")
    if spec is None:
        return None
    if meta is None and "metadata" not in patch:
        return {**old, "spec": spec}
    annotations = _annotations(old["metadata"].get("annotations"), meta)
    if annotations is None:
        return None
    return {**old, "metadata": {**old["metadata"], "annotations": annotations}, "spec": spec}


def _spec(held: Any, given: Any) -> Document | None:
    """The spec with another time; None where anything else differs."""
    if type(held) is not dict or type(given) is not dict:
        return None
    for field, value in given.items():
        if field == "renewTime":
            if not _is_micro_time(value):
                return None
        elif (
            type(value) not in (str, int)
            or value != held.get(field)
            or type(held[field]) is not type(value)
        ):
            return None
    return {**held, **given}


def _annotations(held: Any, given: Any) -> Document | None:
    """The annotations with other values, none of them longer; None where there are other keys."""
    if type(given) is not dict or given.keys() != {"annotations"} or type(held) is not dict:
        return None
    values = given["annotations"]
    if type(values) is not dict:
        return None
    found = dict(held)
    for key, value in values.items():
        if value is None and key not in held:
            continue
        if key not in held or type(value) is not str or len(value) > len(held[key]):
            return None
        found[key] = value
    return found


def _is_micro_time(value: Any) -> bool:
    """Whether it is a time as agents write it; others are checked as those of any object."""
    return type(value) is str and value[-1:] == "Z" and _MICRO_TIME.match(value) is not None
