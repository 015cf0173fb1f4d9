"""A provider is one package and one line of a table: an example is built, gives a machine, and is removed."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.machine_world import MachineWorld, machine_world

from grange.api.machine_phases import MachinePhase
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines import providers
from grange.machines.providers import ProviderTools, create_provider
from grange.machines.providers.provider import MisconfiguredError, Provider

MODULE = "example_provider"
FILE = '''
"""The provider ``example``: machines of a cloud that is given to it."""

from grange.machines.providers.config_reader import ConfigReader
from grange.machines.providers.simulated.simulated_provider import SimulatedProvider


def create(config, tools):
    ConfigReader(config, frozenset({"zone"})).text("zone")
    return SimulatedProvider(tools.settings["cloud"], tools.cluster)
'''


def _create(
    world: MachineWorld, name: str, config: Mapping[str, Any], tools: ProviderTools
) -> Provider:
    """By the table, as a control plane does."""
    return create_provider(name, config, replace(tools, settings={"cloud": world.cloud}))


async def test_provider_is_one_package_and_one_line(
    clock: Clock, rng: Stream, log: Logger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What docs/explanation/architecture.md promises for a provider."""
    (tmp_path / f"{MODULE}.py").write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(MachineWorld, "provider", _create)
    with monkeypatch.context() as table:
        table.setattr(providers, "PROVIDERS", {**providers.PROVIDERS, "example": MODULE})
        async with machine_world(clock, rng, log) as world:
            await world.add_pool(provider="example", providerConfig={"zone": "b"})
            await world.add_pod("a")
            await world.bound("a")
            (machine,) = await world.machines(MachinePhase.CLAIMED)
            assert machine.metadata.name in world.cloud.instances
    sys.modules.pop(MODULE, None)
    tools = ProviderTools("c", clock, rng, log)
    with pytest.raises(MisconfiguredError, match=r"no provider 'example'; use one of ec2, "):
        create_provider("example", {}, tools)
