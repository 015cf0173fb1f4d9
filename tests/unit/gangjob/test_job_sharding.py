"""Jobs as objects of the farm."""

import pytest
from tests.support.memory_sink import MemorySink

from grange.alerts.alerts import Alerts
from grange.api.kinds import GANGJOB, JOB, PYTORCHJOB, TFJOB
from grange.controllers.sharded import SHARDED
from grange.reconcile.farm.deletion_guard import DeletionGuard
from grange.reconcile.farm.errors import DeletionsHeld

JOBS = sorted(
    name for name, made in SHARDED.items() if made.kind in {GANGJOB, JOB, PYTORCHJOB, TFJOB}
)


def test_every_kind_of_job_is_shared() -> None:
    assert JOBS == ["gangjob", "job", "pytorchjob", "tfjob"]


@pytest.mark.parametrize("name", JOBS)
def test_expired_jobs_do_not_hold_the_cleanup_of_others(name: str) -> None:
    guard = DeletionGuard(name, Alerts(MemorySink()), SHARDED[name].deletion_guard)
    guard.see(0.0, objects=5000, weight=40_000, version="7")
    guard.see(1.0, objects=10, weight=0, version="8")
    guard.see(2.0, objects=0, weight=0, version="9")
    for _ in range(20_000):
        guard.permit_deletion(3.0)
    guard.see(4.0, objects=0, version="3")
    with pytest.raises(DeletionsHeld, match="store_went_back"):
        guard.permit_deletion(5.0)
