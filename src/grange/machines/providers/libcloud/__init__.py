"""The provider ``libcloud``: instances of the clouds that apache-libcloud has a driver for.

Owns: the configuration of a pool (``libcloud_config``), how each driver tags instances and takes user data
    (``driver_adapters``), what errors of drivers mean (``libcloud_errors``), the threads that drivers run in
    (``driver_lanes``), what can be bought and which image is meant (``libcloud_catalogue``), and the provider over
    them (``libcloud_provider``).
Never: ends an instance that has not the mark of this cluster, writes credentials into an error or a log.
Concurrency: calls block in threads of the provider, each with a driver to itself; launches of one token are in one
    thread, one after another.
Start reading at: ``libcloud_provider``: most clouds have no tokens of launches, so what takes their place is described there.
"""

from collections.abc import Mapping
from typing import Any

from grange.machines.providers import ProviderTools
from grange.machines.providers.libcloud.libcloud_config import read_config
from grange.machines.providers.libcloud.libcloud_provider import LibcloudProvider


def create(config: Mapping[str, Any], tools: ProviderTools) -> LibcloudProvider:
    """A provider of one account at one cloud.

    Raises:
        MisconfiguredError: the configuration is malformed, or there is no such driver.
    """
    return LibcloudProvider(read_config(config), tools)
