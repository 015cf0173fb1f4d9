"""The providers of the pools and machines that there are, each watched as long as one uses it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from grange.api import codec
from grange.api.kinds.machine import Machine
from grange.api.kinds.nodepool import NodePool
from grange.api.validation import nodepools
from grange.base.bounded import BoundedDict
from grange.base.first_few import first_few
from grange.base.tasks import Child, Nursery, supervise
from grange.machines.controller.controller_context import NodeControllerContext
from grange.machines.controller.pool_template import CONFIG_ANNOTATION, config_text
from grange.machines.controller.provider_calls import ProviderCalls
from grange.machines.controller.provider_watch import ProviderWatch, WatchHooks
from grange.machines.providers import ProviderTools, create_provider
from grange.machines.providers.provider import MisconfiguredError, Provider
from grange.machines.scaling.capacity_memory import CapacityMemory

_SHOWN = 3  # faults of a pool

CreateProvider = Callable[[str, Mapping[str, Any], ProviderTools], Provider]

Key = tuple[str, str]
"""Name of a provider and its configuration as text."""


class ProviderTable:
    """Makes providers and watches them.

    A machine keeps the configuration that it was ordered with, so that it is found where it was launched
    though the pool has another one now, or is gone.

    Args:
        tools: of providers; the settings are by the name of the provider.
        context: the records, their updater, settings.
        hooks: of the watches; ``on_change`` is called for each pool of the provider.
        create: makes a provider.
    """

    def __init__(
        self,
        tools: ProviderTools,
        context: NodeControllerContext,
        hooks: WatchHooks,
        create: CreateProvider = create_provider,
    ) -> None:
        self._tools, self._create = tools, create
        self._listers, self._updater = context.listers, context.updater
        self._hooks, self._config, self._metrics = hooks, context.config, context.metrics
        self._watches: dict[Key, tuple[ProviderWatch, Child[None]]] = {}
        self._refused: dict[Key, str] = {}
        self._faults: BoundedDict[tuple[str, int], str] = BoundedDict(1000)  # by UID and generation
        self._nursery: Nursery | None = None
        self._prune_due = 0.0

    def begin(self, nursery: Nursery) -> None:
        """From now on watches run in this nursery; none of a former one is left."""
        self._nursery = nursery
        self._watches.clear()
        self._refused.clear()

    def of_pool(self, pool: NodePool) -> ProviderWatch | str:
        """The provider of a pool, or why it cannot be used."""
        return self._watch((pool.spec.provider, config_text(pool)))

    def usable(self, pool: NodePool) -> ProviderWatch | str:
        """The provider of a pool, or why no machines can be planned for the pool."""
        key = pool.metadata.uid, pool.metadata.generation
        if key not in self._faults:
            self._faults[key] = _faults(pool)
        return self._faults[key] or self.of_pool(pool)

    def of_machine(self, machine: Machine) -> ProviderWatch | None:
        """The provider of a machine; None where it cannot be used."""
        found = self._watch(self._key(machine))
        return found if isinstance(found, ProviderWatch) else None

    async def prune(self) -> None:
        """End the watches that nothing uses any more, and try those that were refused again.

        Returns at once where that was done a short time ago.
        """
        now = self._tools.clock.monotonic()
        if now < self._prune_due:
            return
        self._prune_due = now + self._config.instances_interval_s
        used = {(pool.spec.provider, config_text(pool)) for pool in self._listers.pools()}
        used |= {self._key(machine) for machine in self._listers.machines()}
        self._refused.clear()
        for key in [key for key in self._watches if key not in used]:
            watch, task = self._watches.pop(key)
            task.cancel()
            await watch.calls.provider.close()

    async def close(self) -> None:
        """Close all providers; instances stay."""
        for watch, _ in self._watches.values():
            await watch.calls.provider.close()
        self._watches.clear()

    def _key(self, machine: Machine) -> Key:
        text = machine.metadata.annotations.get(CONFIG_ANNOTATION)
        if text is None:
            pool = self._listers.pool(machine.spec.pool)
            text = config_text(pool) if pool is not None else "{}"
        return machine.spec.provider, text

    def _watch(self, key: Key) -> ProviderWatch | str:
        known = self._watches.get(key)
        if known is not None:
            return known[0]
        if key in self._refused:
            return self._refused[key]
        name, text = key
        settings = self._tools.settings.get(name, {})
        tools = replace(
            self._tools,
            rng=self._tools.rng.fork(name),
            log=self._tools.log.bind(provider=name),
            settings=settings,
        )
        try:
            provider = self._create(name, _config(text), tools)
        except MisconfiguredError as error:
            self._refused[key] = f"{error}"
            return f"{error}"
        if self._nursery is None:
            raise RuntimeError("providers are made while the controller runs")
        clock, memory = self._tools.clock, CapacityMemory()
        calls = ProviderCalls(
            provider,
            self._updater,
            memory,
            clock,
            self._metrics,
            timeout_s=self._config.call_timeout_s,
        )
        watch = ProviderWatch(
            calls, memory, self._listers, self._hooks, self._config, clock, tools.log
        )
        task = self._nursery.start(
            supervise(f"provider {name}", watch.run, clock=clock, log=tools.log),
            name=f"provider {name}",
        )
        self._watches[key] = (watch, task)
        return watch


def _faults(pool: NodePool) -> str:
    """What is wrong with a pool, where our rules are not checked on admission; empty for nothing."""
    causes = nodepools.check(codec.to_document(pool), None)
    return first_few([f"{cause.field}: {cause.message}" for cause in causes], _SHOWN)


def _config(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise MisconfiguredError(
            f"metadata.annotations[{CONFIG_ANNOTATION}]: is no JSON object; restore it"
        )
    return found
