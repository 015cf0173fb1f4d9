"""The provider over a simulated cloud: calls take time and may have faults."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TypeVar

from grange.machines.catalogue import InstanceType
from grange.machines.providers.provider import (
    Instance,
    Interruption,
    LaunchRequest,
    MisconfiguredError,
    ProviderError,
    ThrottledError,
)
from grange.machines.providers.simulated.cloud import IMAGES, AnnouncedEnd, SimulatedCloud
from grange.machines.providers.simulated.cloud_faults import CloudFault

T = TypeVar("T")

_AGAIN_S = 10.0  # a notice that was put off comes again


def _refusal(fault: CloudFault | None) -> ProviderError | None:
    """The error that a call is refused with; nothing is done then."""
    match fault:
        case CloudFault.FAIL:
            return ProviderError("the simulated cloud has failed; try again")
        case CloudFault.THROTTLE:
            return ThrottledError("too many calls; wait", retry_after_s=5.0)
        case CloudFault.MISCONFIGURED:
            return MisconfiguredError("credentials refused; change the pool")
        case _:
            return None


class SimulatedProvider:
    """One client of the cloud.

    Args:
        cloud: whose instances.
        cluster: tag of the instances that it launches and sees.
    """

    def __init__(self, cloud: SimulatedCloud, cluster: str) -> None:
        self.cloud, self._cluster = cloud, cluster

    @property
    def can_stop(self) -> bool:
        """Whether instances can be switched off and kept."""
        return self.cloud.stoppable

    @property
    def can_wipe(self) -> bool:
        """Whether used machines can be made as new."""
        return self.cloud.wipeable

    async def catalogue(self) -> Sequence[InstanceType]:
        """The types of the cloud."""
        return await self._call("catalogue", "", lambda: sorted_types(self.cloud))

    async def resolve_image(self, spec: Mapping[str, str]) -> str:
        """The image of a name, ``default`` unless given.

        Raises:
            MisconfiguredError: there is none of that name.
        """
        name = spec.get("name", "default")

        def look_up() -> str:
            if name not in IMAGES:
                raise MisconfiguredError(f"spec.bootImage: no image {name!r}; name another")
            return IMAGES[name]

        return await self._call("resolve_image", name, look_up)

    async def launch(self, request: LaunchRequest) -> Instance:
        """See ``Provider.launch``."""
        return await self._call(
            "launch", request.token, lambda: self.cloud.launch(request, self._cluster)
        )

    async def instances(self) -> Sequence[Instance]:
        """See ``Provider.instances``."""
        return await self._call("instances", "", lambda: self.cloud.listed(self._cluster))

    async def terminate(self, instance_id: str) -> None:
        """See ``Provider.terminate``."""
        await self._call("terminate", instance_id, lambda: self.cloud.end(instance_id))

    async def stop(self, instance_id: str) -> None:
        """See ``Provider.stop``."""
        await self._call("stop", instance_id, lambda: self.cloud.stop(instance_id))

    async def start(self, instance_id: str) -> None:
        """See ``Provider.start``."""
        await self._call("start", instance_id, lambda: self.cloud.start(instance_id))

    async def wipe(self, instance_id: str) -> None:
        """See ``Provider.wipe``."""
        await self._call("wipe", instance_id, lambda: self.cloud.wipe(instance_id))

    async def resize_volume(self, instance_id: str, gib: int) -> bool:
        """Grow the disk."""

        def resize() -> bool:
            found = self.cloud.find(instance_id)
            if found is None:
                return False
            found.volume_gib = max(gib, found.volume_gib)
            return True

        return await self._call("resize_volume", instance_id, resize)

    async def interruptions(self) -> AsyncGenerator[Interruption, bool | None]:
        """The notices of the cloud, each removed there when the next one is asked for."""
        again: dict[AnnouncedEnd, float] = {}  # when those come that were put off
        while True:
            now, announced = self.cloud.now(), self.cloud.announced(self._cluster)
            again = {one: at for one, at in again.items() if one in announced and at > now}
            waiting = next((one for one in announced if one not in again), None)
            if waiting is None:
                await self.cloud.announcement(min(again.values(), default=None))
            elif (yield waiting.notice(now)) is False:
                again[waiting] = self.cloud.now() + _AGAIN_S
            else:
                self.cloud.taken(waiting)

    async def close(self) -> None:
        """Nothing to end."""

    async def _call(self, call: str, subject: str, act: Callable[[], T]) -> T:
        await self.cloud.clock.sleep(self.cloud.latencies.call)
        fault = self.cloud.faults(call, subject)
        if (refusal := _refusal(fault)) is not None:
            raise refusal
        if fault is CloudFault.LATE:
            self.cloud.later(_careless(act))
            raise ProviderError(f"{call}: the simulated cloud does not answer; try again")
        if fault is CloudFault.HANG:
            await asyncio.Event().wait()
        self.cloud.now()
        answer = act()
        if fault is CloudFault.TWICE:
            self.cloud.later(_careless(act))
        if fault is CloudFault.LIE:
            raise ProviderError(f"{call}: the simulated cloud does not answer; try again")
        if fault is CloudFault.HANG_DONE:
            await asyncio.Event().wait()
        return answer


def sorted_types(cloud: SimulatedCloud) -> list[InstanceType]:
    """What can be bought, by name."""
    return [cloud.types[name] for name in sorted(cloud.types)]


def _careless(act: Callable[[], object]) -> Callable[[], None]:
    """The call, without its answer and its errors."""

    def run() -> None:
        try:
            act()
        except ProviderError:
            return

    return run
