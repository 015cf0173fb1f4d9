"""The provider ``ssh``: hosts that exist, claimed, set up, cleaned and given back over SSH.

Owns: the configuration of a pool (``ssh_config``), the scripts that hosts run (``host_scripts``), the connections
    (``host_connections``), and the provider over them (``ssh_provider``).
Never: trusts a host whose key the pool does not name, takes keys from files of this computer.
Concurrency: one connection a host, made again when it is lost.
Start reading at: ``host_scripts``: a claim is a link on the host, so it outlives every control plane.
"""

from collections.abc import Mapping
from typing import Any

from grange.machines.providers import ProviderTools
from grange.machines.providers.ssh.ssh_config import read_config
from grange.machines.providers.ssh.ssh_provider import SshProvider


def create(config: Mapping[str, Any], tools: ProviderTools) -> SshProvider:
    """A provider over the hosts of the pool.

    Raises:
        MisconfiguredError: the configuration is malformed.
    """
    return SshProvider(read_config(config), tools)
