"""One provider, as far as it is known: its instances, what it sells, its images.

What was read last is used until it can be read again: a provider that does not answer costs
nothing that runs, and a list that fails is no empty list.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from grange.api.status import ApiError
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.tasks import Child, Nursery
from grange.machines.catalogue import InstanceType
from grange.machines.controller.instance_looks import InstanceLooks
from grange.machines.controller.machine_listers import MachineListers
from grange.machines.controller.node_controller_config import NodeControllerConfig
from grange.machines.controller.provider_calls import ProviderCalls
from grange.machines.providers.last_errors import LastErrors
from grange.machines.providers.provider import Instance, InstanceState, Interruption, ProviderError
from grange.machines.scaling.capacity_memory import CapacityMemory

_ENDING = {InstanceState.ENDING, InstanceState.STOPPING}
_NOTICE_S = 5.0  # a notice holds later ones up for no longer


@dataclass(slots=True)
class BootImage:
    """An image of a provider.

    Attributes:
        image: as the provider identifies it; None while none was ever found.
        error: why the last look-up failed; empty where it did not.
        due: when it is looked up again, monotonic seconds.
    """

    image: str | None = None
    error: str = ""
    due: float = 0.0


@dataclass(frozen=True, slots=True)
class WatchHooks:
    """What a watch asks and whom it wakes.

    Attributes:
        is_recorded: asks the server whether there is a Machine of a name.
        on_machine: something else is known of a machine of this name now.
        on_change: the catalogue or an image is known, or is another one.
        on_notice: the provider announces to take a machine of this name away.
    """

    is_recorded: Callable[[str], Awaitable[bool]]
    on_machine: Callable[[str], None]
    on_change: Callable[[], None]
    on_notice: Callable[[str, Interruption, CapacityMemory], Awaitable[None]]


class ProviderWatch:
    """Looks at one provider, as long as it runs.

    Args:
        calls: to the provider.
        memory: of what it could not give.
        listers: the records.
        hooks: see there.
        config: intervals.
        clock: time.
        log: the logger.

    Attributes:
        calls: to the provider.
        memory: of what it could not give.
        refusals: of launches that pools can have none of.
        budgets: of launches by offering.
        catalogue: what it sells; None while that is not known.
        calling: names of machines with a launch under way.
    """

    def __init__(
        self,
        calls: ProviderCalls,
        memory: CapacityMemory,
        listers: MachineListers,
        hooks: WatchHooks,
        config: NodeControllerConfig,
        clock: Clock,
        log: Logger,
    ) -> None:
        self.calls, self.memory = calls, memory
        self.refusals, self.budgets = calls.refusals, calls.budgets
        self._listers, self._hooks, self._config = listers, hooks, config
        self._clock, self._log = clock, log
        self.catalogue: Sequence[InstanceType] | None = None
        self._errors, self._kept = LastErrors(), LastErrors()  # of reads, and of ends by instance
        self.calling: set[str] = set()
        self._looks = InstanceLooks(config.strike_s)
        self._instances: Mapping[str, Instance] = {}
        self._missing: frozenset[str] = frozenset()
        self._looked = 0.0
        self._images: dict[str, tuple[Mapping[str, str], BootImage]] = {}
        self._look_now, self._find_now = asyncio.Event(), asyncio.Event()
        self._listed = asyncio.Event()  # set by every list that succeeds
        self._asked: Child[None] | None = None  # the list that a notice asked for

    # --- what is known ---------------------------------------------------------------------------

    @property
    def error(self) -> str:
        """Why the instances or the catalogue could not be read last; empty where they could."""
        return self._errors.get("instances") or self._errors.get("catalogue")

    def instance(self, machine: str) -> Instance | None:
        """The instance of a machine, as the last list showed it."""
        return self._instances.get(machine)

    def is_missing(self, machine: str) -> bool:
        """Whether two lists apart have shown no instance of a machine."""
        return machine in self._missing

    def looked_since(self, at: float | None) -> bool:
        """Whether the last list was asked for after a time, in monotonic seconds; None: never."""
        return at is not None and self._looked > at

    def image(self, spec: Mapping[str, str]) -> BootImage:
        """The image that matches a pool's description, once it is known."""
        return self._wanted(spec)

    # --- what is done ----------------------------------------------------------------------------

    def look_soon(self) -> None:
        """Something was done that the next list may show."""
        self._look_now.set()

    def launching(self, machine: str) -> None:
        """A launch is asked for now."""
        self.calling.add(machine)
        self._looks.forget(machine)
        self._missing -= {machine}

    def launched(self, machine: str) -> None:
        """The launch is over, however it ended."""
        self.calling.discard(machine)

    async def run(self) -> None:
        """Look until cancelled."""
        self.calling.clear()
        self._asked = None
        async with Nursery("provider") as nursery:
            nursery.start(self._look_on(), name="instances")
            nursery.start(self._find_on(), name="catalogue")
            nursery.start(self._read_notices(nursery), name="interruptions")

    async def _look_on(self) -> None:
        while True:
            self._look_now.clear()
            await self.look()
            await self._wait(self._look_now, self._until_next_s())
            await self._clock.sleep(self._config.look_pause_s)

    def _until_next_s(self) -> float:
        """Sooner while an instance ends: its machine waits for that alone."""
        ending = any(one.state in _ENDING for one in self._instances.values())
        return self._config.ending_interval_s if ending else self._config.instances_interval_s

    async def _find_on(self) -> None:
        while True:
            self._find_now.clear()
            wait_s = await self.find()
            await self._wait(self._find_now, wait_s)

    async def _wait(self, event: asyncio.Event, seconds: float) -> None:
        try:
            async with self._clock.timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass  # it is time

    # --- instances -------------------------------------------------------------------------------

    async def look(self) -> None:
        """List the instances once, and end those that have no record."""
        began, calling = self._clock.monotonic(), set(self.calling)
        try:
            instances = await self.calls.within("instances", self.calls.provider.instances())
        except ProviderError as error:
            self._note("instances", f"{error}")
            return
        self._note("instances", "")
        names = self._listers.machine_names()
        result = self._looks.look(instances, names, calling=calling | self.calling, began=began)
        before, missed = self._instances, self._missing
        self._instances, self._missing = result.by_machine, result.missing
        self._looked = began
        self._listed.set()
        for name in sorted(names):
            known, was = self._instances.get(name), before.get(name)
            if known != was or (name in missed) != (name in self._missing):
                self._hooks.on_machine(name)
        for orphan in result.orphans:
            await self._end(orphan)

    async def _end(self, orphan: Instance) -> None:
        """End an instance that has no record; the server is asked, since caches lag."""
        try:
            if await self._hooks.is_recorded(orphan.machine):
                return
            if not self._kept.get(orphan.id):
                self._log.warning(
                    "instance without a record is ended", instance=orphan.id, machine=orphan.machine
                )
            await self.calls.within("terminate", self.calls.provider.terminate(orphan.id))
            self._kept.changed(orphan.id, "")
        except (ApiError, ProviderError) as error:
            if self._kept.changed(orphan.id, f"{error}"):
                self._log.warning("instance not ended", instance=orphan.id, error=error)

    # --- interruptions ---------------------------------------------------------------------------

    async def _read_notices(self, nursery: Nursery) -> None:
        async with aclosing(self.calls.provider.interruptions()) as notices:
            handled: bool | None = None  # what the first one is asked for with
            while (notice := await _following(notices, handled=handled)) is not None:
                handled = await self._is_handled(notice, nursery)

    async def _is_handled(self, notice: Interruption, nursery: Nursery) -> bool:
        """Whether a notice was handled in a short time; if not it comes again, and later ones come before."""
        try:
            async with self._clock.timeout(_NOTICE_S):
                name = await self._machine_listed(notice.instance_id, nursery)
                if name is None:
                    self._log.info("notice about an unknown instance", instance=notice.instance_id)
                else:
                    await self._hooks.on_notice(name, notice, self.memory)
        except TimeoutError:
            return False
        return True

    async def _machine_listed(self, instance_id: str, nursery: Nursery) -> str | None:
        """The machine of an instance; None once a list that began later does not show it, and no record.

        A list that fails shows nothing, and one that hangs does not delay the answer of another.
        """
        came, name = self._clock.monotonic(), self._machine_of(instance_id)
        if name is None and (self._asked is None or self._asked.done()):
            self._asked = nursery.start(self.look(), name="instances of a notice")
        while name is None and not self.looked_since(came):
            self._listed.clear()
            await self._listed.wait()
            name = self._machine_of(instance_id)
        return name

    def _machine_of(self, instance_id: str) -> str | None:
        found = (name for name, one in self._instances.items() if one.id == instance_id)
        return next(found, None) or self._listers.machine_with(instance_id)

    # --- catalogue and images --------------------------------------------------------------------

    async def find(self) -> float:
        """Read the catalogue and the images that are due; seconds until the next are."""
        wait_s = self._config.image_ttl_s
        try:
            found = await self.calls.within("catalogue", self.calls.provider.catalogue())
        except ProviderError as error:
            self._note("catalogue", f"{error}")
            wait_s = self._config.instances_interval_s
        else:
            changed = self.catalogue is None or [*self.catalogue] != [*found]
            self.catalogue = found
            self._note("catalogue", "")
            if changed:
                self._hooks.on_change()
        for spec, image in list(self._images.values()):
            if image.due > self._clock.monotonic():
                continue
            before = (image.image, image.error)
            await self._resolve(spec, image)
            if image.error:
                wait_s = min(wait_s, self._config.instances_interval_s)
            if before != (image.image, image.error):
                self._hooks.on_change()
        return wait_s

    async def _resolve(self, spec: Mapping[str, str], image: BootImage) -> None:
        try:
            found = await self.calls.within("image", self.calls.provider.resolve_image(spec))
        except ProviderError as error:
            image.error = f"{error}"
            image.due = (
                self._clock.monotonic()
            )  # at the next look, with the last good one until then
        else:
            image.image, image.error = found, ""
            image.due = self._clock.monotonic() + self._config.image_ttl_s

    def _wanted(self, spec: Mapping[str, str]) -> BootImage:
        key = json.dumps(dict(spec), sort_keys=True)
        known = self._images.get(key)
        if known is None:
            known = self._images[key] = (dict(spec), BootImage())
            self._find_now.set()
        return known[1]

    def _note(self, what: str, error: str) -> None:
        """Why something could not be read; empty: it was."""
        if not self._errors.changed(what, error):
            return
        if error:
            self._log.warning("provider failed", error=error)
        self._hooks.on_change()


async def _following(
    notices: AsyncGenerator[Interruption, bool | None], *, handled: bool | None
) -> Interruption | None:
    """The next notice, after an answer to the last one; None where there are no more."""
    try:
        return await notices.asend(handled)
    except StopAsyncIteration:
        return None
