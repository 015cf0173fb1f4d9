"""The provider ``ec2``: instances of Amazon EC2, on demand and spot.

Owns: the configuration of a pool (``ec2_config``), what can be bought (``ec2_catalogue``, ``ec2_prices``),
    images (``ec2_images``), subnets (``subnet_table``), notices (``interruption_queue``), what errors of the API
    mean (``ec2_errors``), and the provider over them (``ec2_provider``).
Never: reads credentials itself: the library finds them where its users expect it.
Concurrency: calls block in threads of the provider.
Start reading at: ``ec2_provider``.
"""

from collections.abc import Mapping
from typing import Any

from grange.machines.providers import ProviderTools
from grange.machines.providers.ec2.ec2_config import read_config
from grange.machines.providers.ec2.ec2_provider import Ec2Provider


def create(config: Mapping[str, Any], tools: ProviderTools) -> Ec2Provider:
    """A provider of one region.

    Raises:
        MisconfiguredError: the configuration is malformed.
    """
    return Ec2Provider(read_config(config), tools)
