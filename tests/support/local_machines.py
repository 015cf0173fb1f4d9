"""The provider ``local`` over harmless programs, none of which outlives its test."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.providers import ProviderTools, create_provider
from grange.machines.providers.provider import Provider

CONFIG = {"capacity": {"cpu": "2", "memory": "2Gi"}}
COMMAND = ("sleep", "60")


def open_local(directory: Path, cluster: str, config: Mapping[str, Any] = CONFIG) -> Provider:
    """A provider, as the control plane makes one at its start."""
    settings = {"directory": str(directory), "command": COMMAND}
    tools = ProviderTools(cluster, LoopClock(), Stream(1), Logger("test"), settings)
    return create_provider("local", config, tools)


@asynccontextmanager
async def local_machines(directory: Path, cluster: str) -> AsyncIterator[Provider]:
    """A provider whose machines end with the block."""
    provider = open_local(directory, cluster)
    try:
        yield provider
    finally:
        for one in await provider.instances():
            await provider.terminate(one.id)
        await provider.close()
