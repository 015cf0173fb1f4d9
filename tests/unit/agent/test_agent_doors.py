"""A probe type and a restart policy are one line of a table each: examples are added and removed."""

import os
from pathlib import Path

import pytest
from tests.unit.agent.builders import at, pod, run

from grange.agent import probe_thresholds
from grange.agent.config import Timing
from grange.agent.container_runtime import ContainerID, PodRuntime
from grange.agent.lifecycle import managed_containers
from grange.agent.probe_answer import Answer, ProbeTarget
from grange.agent.probe_types import PROBE_TYPES, ProbeType
from grange.agent.prober import SystemProber
from grange.agent.runtimes.fake import FakeMachine, FakeRuntime
from grange.agent.transitions import ContainerPhase
from grange.api.kinds import POD
from grange.api.kinds.pod import Container, Probe
from grange.api.restart_policies import RESTART_POLICIES
from grange.base.clock import Clock


class FileProbe(Probe, frozen=True):
    """What a field of ``Probe`` would be."""

    file: str = ""


async def file_exists(
    probe: Probe, _target: ProbeTarget, _runtime: PodRuntime, _limit_s: float
) -> Answer:
    assert isinstance(probe, FileProbe)
    return Answer(os.access(probe.file, os.R_OK), f"no file {probe.file}")


async def test_probe_type_is_one_module_and_one_line(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What docs/explanation/architecture.md promises for a probe type."""
    file = tmp_path / "ready"
    view = Container(name="main", readiness_probe=FileProbe(file=str(file)))
    assert probe_thresholds.of(view) == []
    file_type = ProbeType(lambda probe: isinstance(probe, FileProbe), file_exists)
    monkeypatch.setitem(PROBE_TYPES, "file", file_type)
    ((_, probe),) = probe_thresholds.of(view)
    prober = SystemProber(FakeRuntime(FakeMachine(), clock), clock)
    target = ProbeTarget("127.0.0.1", view, ContainerID("uid", "main", 0))
    assert await prober.ask(probe, target) == Answer(ok=False, message=f"no file {file}")
    file.touch()
    assert (await prober.ask(probe, target)).ok is True


def test_restart_policy_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """What docs/explanation/architecture.md promises for a restart policy."""

    def twice(attempt: int, exit_code: int) -> bool:
        return attempt < 1

    def refused() -> bool:
        return any(
            cause.field == "spec.restartPolicy"
            for cause in POD.validate({"spec": {"restartPolicy": "Twice"}}, None)
        )

    def phases() -> list[ContainerPhase]:
        (container,) = managed_containers(pod(restartPolicy="Twice"))
        found: list[ContainerPhase] = []
        for attempt in range(2):
            if container.phase is ContainerPhase.DONE:
                break
            container.on_created(run(attempt=attempt))
            ended = run(attempt=attempt, end=1, code=1)
            container.on_ended(ended, at(1), Timing(), pod_ends=False)
            found.append(container.phase)
        return found

    assert phases() == [ContainerPhase.DONE]
    assert refused()
    monkeypatch.setitem(RESTART_POLICIES, "Twice", twice)
    assert phases() == [ContainerPhase.BACKOFF, ContainerPhase.DONE]
    assert not refused()
