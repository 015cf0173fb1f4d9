"""The conditions of a terminating namespace about what is still in it: pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grange.api import conditions
from grange.api.meta import Condition

CONTENT_REMAINING = "NamespaceContentRemaining"
FINALIZERS_REMAINING = "NamespaceFinalizersRemaining"
DELETION_FAILURE = "NamespaceDeletionContentFailure"


@dataclass(frozen=True, slots=True)
class Remains:
    """What a pass left behind.

    Attributes:
        counts: how many objects are still there, by ``plural.group``.
        finalizers: how many objects a finalizer holds, by finalizer.
        failures: what went wrong, one sentence each.
    """

    counts: Mapping[str, int]
    finalizers: Mapping[str, int]
    failures: Sequence[str] = ()

    @property
    def empty(self) -> bool:
        """Whether the namespace may go."""
        return not any(self.counts.values()) and not self.failures


def _listed(counts: Mapping[str, int], what: str) -> str:
    found = Counter(counts)
    return ", ".join(f"{name} has {found[name]} {what}" for name in sorted(+found))


def conditions_of(old: Sequence[Condition], remains: Remains, now: str) -> tuple[Condition, ...]:
    """The conditions that the namespace should have; equal to the old when nothing changed."""
    content = _listed(remains.counts, "resource instances")
    held = _listed(remains.finalizers, "resource instances")
    rows = (
        (
            DELETION_FAILURE,
            bool(remains.failures),
            ("ContentDeletionFailed", "; ".join(remains.failures)),
            ("ContentDeleted", "All content could be deleted"),
        ),
        (
            CONTENT_REMAINING,
            bool(content),
            ("SomeResourcesRemain", f"Some resources are remaining: {content}"),
            ("ContentRemoved", "All content was removed"),
        ),
        (
            FINALIZERS_REMAINING,
            bool(held),
            ("SomeFinalizersRemain", f"Some content in the namespace has finalizers: {held}"),
            ("ContentHasNoFinalizers", "No content waits for a finalizer"),
        ),
    )
    result = tuple(old)
    for kind, bad, yes, no in rows:
        reason, message = yes if bad else no
        condition = Condition(type=kind, status=str(bad), reason=reason, message=message)
        result = conditions.set_condition(result, condition, now)
    return result
