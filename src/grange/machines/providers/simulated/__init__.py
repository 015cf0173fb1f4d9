"""The provider ``simulated``: instances that exist in memory only, with faults on request.

Owns: the simulated cloud (``cloud``), the faults that its calls may have (``cloud_faults``), and the provider
    that calls it (``simulated_provider``).
Never: makes nodes; the simulation lets a node join for each instance that runs.
Concurrency: none; states follow from the clock when they are asked for.
Start reading at: ``cloud``.
"""

from collections.abc import Mapping
from typing import Any

from grange.machines.providers import ProviderTools
from grange.machines.providers.simulated.cloud import SimulatedCloud
from grange.machines.providers.simulated.simulated_provider import SimulatedProvider


def create(config: Mapping[str, Any], tools: ProviderTools) -> SimulatedProvider:
    """A provider over an own, empty cloud. It has no settings."""
    return SimulatedProvider(SimulatedCloud(tools.clock), tools.cluster)
