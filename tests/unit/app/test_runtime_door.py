"""A runtime is one package and one line: an example is chosen by its setting and removed."""

from pathlib import Path
from typing import Self

import pytest

from grange.agent.node_runtime import NodeRuntime
from grange.agent.runtime_options import RuntimeOptions
from grange.agent.runtime_table import RUNTIMES
from grange.agent.runtimes.fake import FakeMachine, FakeRuntime
from grange.app.local_nodes import LocalNodes
from grange.app.settings import Settings, SettingsError
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Offload


class ExampleRuntime(FakeRuntime):
    """Runs nothing, and records what is asked of it."""

    def __init__(self, clock: Clock, calls: list[str]) -> None:
        super().__init__(FakeMachine(), clock)
        self._calls = calls

    async def __aenter__(self) -> Self:
        self._calls.append("open")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._calls.append("close")

    async def stop_all(self, grace_s: float) -> None:
        self._calls.append(f"stop within {grace_s:g}s")


async def test_runtime_is_one_package_and_one_line(
    tmp_path: Path, clock: Clock, log: Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What docs/explanation/architecture.md promises for a runtime."""
    calls: list[str] = []

    def create(
        options: RuntimeOptions, *, clock: Clock, log: Logger, offload: Offload
    ) -> NodeRuntime:
        calls.append(options.data_dir.name)
        return ExampleRuntime(clock, calls)

    settings = Settings(tmp_path / "data", runtime="example")
    with pytest.raises(SettingsError, match="--runtime example: no such runtime; there is process"):
        LocalNodes(settings, clock=clock, log=log)
    monkeypatch.setitem(RUNTIMES, "example", create)
    async with LocalNodes(settings, clock=clock, log=log) as nodes:
        assert nodes.logs is not None
        assert calls == ["data", "open"]
    assert calls == ["data", "open", "stop within 30s", "close"]
