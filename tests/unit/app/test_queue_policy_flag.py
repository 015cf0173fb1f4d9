"""``--queue-policy`` reaches the scheduler of ``grange up`` and of ``grange controllers``."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.scheduler_world import world

from grange.app import roles
from grange.app.controllers import command as controllers
from grange.app.manager import scheduler_for
from grange.app.settings import QUEUE_POLICY, Settings, SettingsError
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.scheduler.gangs.queue_policies import DEFAULT, POLICIES
from grange.scheduler.gangs.queue_policies.best_effort_fifo import BestEffortFIFO

CONFIGURATION = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
REFUSAL = "--queue-policy FIFO: no such queue policy; there are BestEffortFIFO"


async def test_queue_policy_flag_reaches_the_scheduler(
    clock: Clock, rng: Stream, log: Logger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created: list[int] = []

    def fifo(overtakes: int) -> BestEffortFIFO:
        created.append(overtakes)
        return BestEffortFIFO(overtakes)

    monkeypatch.setitem(POLICIES, "FIFO", fifo)
    file = tmp_path / "scheduler.yaml"
    file.write_text(CONFIGURATION)
    ways = (
        roles.scheduler(Settings(tmp_path, queue_policy="FIFO")),
        roles.scheduler(Settings(tmp_path, queue_policy="FIFO", scheduler_config=file)),
        scheduler_for(frozenset(), "FIFO"),
        scheduler_for(frozenset({"ours"}), "FIFO"),
    )
    async with world(clock, rng, log) as made:
        for count, way in enumerate(ways, 1):
            way(made.new_deps(rng.fork(f"deps{count}")))
            assert len(created) == count


def test_unknown_queue_policy_is_refused_by_name(tmp_path: Path) -> None:
    assert QUEUE_POLICY == DEFAULT
    with pytest.raises(SettingsError, match=REFUSAL):
        Settings(tmp_path, queue_policy="FIFO")
    outcome = CliRunner().invoke(controllers, ["--queue-policy", "FIFO"])
    assert outcome.exit_code == 2
    assert REFUSAL in outcome.output
