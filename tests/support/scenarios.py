"""What the scenarios of the scheduler and of replicated services share."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from grange.api.kinds import POD
from grange.api.meta import Document
from grange.sim.invariants import ObservedWrite

_DOCS = Path(__file__).parents[2] / "docs"


class Deaths:
    """Counts the pods that were deleted on request, or went without one.

    Args:
        called: what is counted of a pod.
    """

    def __init__(self, called: Callable[[Document], str]) -> None:
        self.counts: Counter[str] = Counter()
        self._called = called
        self._seen: set[str] = set()

    def see(self, change: ObservedWrite) -> None:
        """Take note of the first word of its end."""
        going = change.deleted or change.document["metadata"].get("deletionTimestamp")
        if change.concerns(POD) and going and change.uid not in self._seen:
            self._seen.add(change.uid)
            self.counts[self._called(change.document)] += 1


def check_documented(page: str, story: str, crashes: int) -> None:
    """The table of crash points on a page of the documentation is right about a story.

    Nearly: a request more or less is no news.
    """
    rows = rf"^\| `{story}` \|.*\| (\d+) \| (\d+) \|$"
    row = re.search(rows, (_DOCS / page).read_text(), re.MULTILINE)
    assert row is not None, f"docs/{page} does not count the crash points of {story}"
    noted_requests, noted_crashes = map(int, row.groups())
    assert noted_crashes == 2 * noted_requests
    assert abs(noted_crashes - crashes) <= noted_crashes / 5, f"count again in docs/{page}"
