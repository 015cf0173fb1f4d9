"""Which time of a node's Lease counts for the status of its pods."""

import pytest

from grange.api.kinds.lease import Lease, LeaseSpec, status_synced_until
from grange.api.meta import ObjectMeta

EARLY, LATE = "2026-01-01T00:00:10.000000Z", "2026-01-01T00:00:20.000000Z"
NEW, OLD = "grange.dev/status-synced-until", "grange.dev/told-until"


@pytest.mark.parametrize(
    ("annotations", "until"),
    [
        ({NEW: LATE}, LATE),
        ({OLD: EARLY}, EARLY),  # an agent that knows the earlier name only
        ({NEW: LATE, OLD: EARLY}, LATE),
        ({NEW: EARLY, OLD: LATE}, LATE),  # the node has an older agent again
        ({}, "renewed"),
    ],
)
def test_status_synced_until_reads_both_names(annotations: dict[str, str], until: str) -> None:
    lease = Lease(
        metadata=ObjectMeta(annotations=annotations), spec=LeaseSpec(renew_time="renewed")
    )
    assert status_synced_until(lease) == until
