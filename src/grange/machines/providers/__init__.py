"""Providers: one package each, the protocol that all of them implement, and the table of them.

A provider is one package that exports ``create`` and one line of ``PROVIDERS``. It is imported when a
pool names it, so that its client library has to be there for its users alone.
"""

import importlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.providers.provider import MisconfiguredError, Provider

PROVIDERS: Mapping[str, str] = {
    "ec2": "grange.machines.providers.ec2",
    "libcloud": "grange.machines.providers.libcloud",
    "local": "grange.machines.providers.local",
    "simulated": "grange.machines.providers.simulated",
    "ssh": "grange.machines.providers.ssh",
}
"""Modules by the name that pools give as ``spec.provider``; each has a ``create``."""

EXTRAS: Mapping[str, str] = {"ec2": "aws", "libcloud": "clouds", "ssh": "ssh"}
"""Extras of the package with the libraries of providers."""

ReadSecret = Callable[[str], Awaitable[Mapping[str, bytes]]]
"""The content of a Secret of the namespace ``kube-system``, by its name; raises ``ProviderError``."""


async def no_secrets(name: str) -> Mapping[str, bytes]:
    """There are none.

    Raises:
        MisconfiguredError: always.
    """
    raise MisconfiguredError(f"secret {name}: there are no secrets here; use another provider")


@dataclass(frozen=True, slots=True)
class ProviderTools:
    """What a provider is made from, besides the pool's ``providerConfig``.

    Attributes:
        cluster: tag of all instances of this control plane; another one's are never touched.
        clock: time.
        rng: the provider's stream.
        log: where it logs; never user data.
        settings: of the process, by name, e.g. where its data are; for providers that need them.
        read_secret: reads credentials that a pool names.
    """

    cluster: str
    clock: Clock
    rng: Stream
    log: Logger
    settings: Mapping[str, Any] = field(default_factory=dict)
    read_secret: ReadSecret = no_secrets


ProviderFactory = Callable[[Mapping[str, Any], ProviderTools], Provider]
"""Makes a provider of the ``providerConfig`` of a pool; raises ``MisconfiguredError``."""


def create_provider(name: str, config: Mapping[str, Any], tools: ProviderTools) -> Provider:
    """The provider of a pool.

    Raises:
        MisconfiguredError: there is none of that name, its library is missing, or it refuses the
            configuration.
    """
    module = PROVIDERS.get(name)
    if module is None:
        known = ", ".join(sorted(PROVIDERS))
        raise MisconfiguredError(f"spec.provider: no provider {name!r}; use one of {known}")
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        extra = f"grange[{EXTRAS[name]}]" if name in EXTRAS else "grange again"
        raise MisconfiguredError(
            f"spec.provider: provider {name!r} cannot be loaded: {error}; install {extra} where the "
            "controllers run"
        ) from error
    factory: ProviderFactory = loaded.create
    return factory(config, tools)
