"""Several profiles in one scheduler: each pod is placed by the one that its schedulerName names."""

from collections.abc import Mapping, Sequence

from grange.api.status import ApiError
from grange.client.client import Client
from grange.scheduler.framework import Bind, Profile
from grange.scheduler.podinfo import PodInfo


class _Binds:
    """Binds every pod as its profile does."""

    def __init__(self, profiles: "ProfileSet") -> None:
        self._profiles = profiles

    async def bind(
        self, client: Client, placements: Sequence[tuple[PodInfo, str]]
    ) -> Sequence[ApiError | None]:
        outcomes: list[ApiError | None] = [None] * len(placements)
        of_plugin: dict[int, list[int]] = {}
        binds = [self._profiles.of(pod).bind for pod, _ in placements]
        for at, bind in enumerate(binds):
            of_plugin.setdefault(id(bind), []).append(at)
        for places in of_plugin.values():
            group = [placements[at] for at in places]
            found = await binds[places[0]].bind(client, group)
            for at, outcome in zip(places, found, strict=True):
                outcomes[at] = outcome
        return outcomes


class ProfileSet:
    """Profiles by scheduler name.

    Args:
        by_name: at least one; names may share a profile. All sort the queue alike, since they
            share it, and have their numbers of signatures from one source.
    """

    def __init__(self, by_name: Mapping[str, Profile]) -> None:
        self._by_name = dict(by_name)
        self._each = tuple(dict.fromkeys(self._by_name.values()))
        alike = len({id(profile.bind) for profile in self._each}) == 1
        self.bind: Bind = self._each[0].bind if alike else _Binds(self)

    @property
    def names(self) -> frozenset[str]:
        """The scheduler names."""
        return frozenset(self._by_name)

    def of(self, pod: PodInfo) -> Profile:
        """The profile that the pod asks for.

        Raises:
            KeyError: no profile has that name; such pods are not ours.
        """
        return self._by_name[pod.pod.spec.scheduler_name]

    def named(self, scheduler_name: str) -> Profile | None:
        """The profile of that name, if there is one."""
        return self._by_name.get(scheduler_name)

    def each(self) -> Sequence[Profile]:
        """All of them."""
        return self._each

    def sign(self, pod: PodInfo) -> int:
        """Number the pod's signature."""
        return self.of(pod).sign(pod)
