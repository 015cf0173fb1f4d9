"""Who takes part, and which sessions are over for good.

A session that has been silent for its whole term is *ended* by a write on its Lease, fenced by the
version at which it was last seen: a renewal that we have not seen makes that write fail. From
then on its claims are void, which everybody can read from the Lease. Nothing is concluded from a
cache alone: a session counts as over when the server's present Lease shows it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from grange.api.farm_protocol import GROUP_LABEL
from grange.api.kinds import LEASE
from grange.api.kinds.lease import Lease
from grange.api.meta import preconditions
from grange.api.selectors import Labels, SelectorError
from grange.api.status import ApiError, Conflict, NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.client.client import Client
from grange.reconcile.farm import leases
from grange.reconcile.farm.config import TICK_S, FarmConfig
from grange.reconcile.farm.leases import Observation, Observations, Token
from grange.reconcile.informer import Informer

_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Peer:
    """A member that takes part in a farm.

    Attributes:
        token: its session.
        selector: which objects it wants.
    """

    token: Token
    selector: Labels

    @property
    def name(self) -> str:
        """Its name."""
        return self.token.member


class Members:
    """The members of a group as one of them sees them.

    Args:
        client: to the API, not fenced.
        informer: of the group's Leases; see ``lease_selection``.
        config: of the member that looks.
        clock, log: of the process.
    """

    def __init__(
        self,
        client: Client,
        informer: Informer[Lease],
        config: FarmConfig,
        *,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._client = client
        self._informer = informer
        self._config = config
        self._clock = clock
        self._log = log.bind(member=config.member)
        self._own = config.lease_name(config.member)
        self._observations = Observations()
        self._over: dict[Token, None] = {}
        self._asked: dict[Token, float] = {}  # when the server was last asked about it
        self._missing: dict[Token, float] = {}  # since when the server has shown no Lease for it
        self._listeners: list[Callable[[], object]] = []
        self._moved = asyncio.Event()
        informer.add_handler(self._seen, lambda _, new: self._seen(new), self._gone)

    @staticmethod
    def lease_selection(config: FarmConfig) -> dict[str, str]:
        """The arguments that select the group's Leases for an informer."""
        return {
            "namespace": config.namespace,
            "labels": f"{GROUP_LABEL}={config.group}",
        }

    @property
    def synced(self) -> asyncio.Event:
        """Set when the members have been listed once."""
        return self._informer.synced

    @property
    def resource_version(self) -> str:
        """The version that our view of the Leases has reached."""
        return self._informer.resource_version

    def add_listener(self, listener: Callable[[], object]) -> None:
        """Register a handler for when a member joins, leaves, or takes part in something else."""
        self._listeners.append(listener)

    def peers(self, farm: str) -> list[Peer]:
        """The members that take part in a farm, by name; those not yet found dead included."""
        found = []
        for observation in self._observations:
            token = leases.token_of(observation.lease)
            selector = leases.farms_of(observation.lease).get(farm)
            if token is None or selector is None:
                continue
            try:
                found.append(Peer(token, Labels.parse(selector)))
            except SelectorError:
                continue  # it publishes that itself; no other member knows what it wants
        return sorted(found, key=lambda peer: peer.name)

    def is_live(self, token: Token) -> bool:
        """Whether our view shows the session on its Lease."""
        observation = self._observations.get(self._config.lease_name(token.member))
        return observation is not None and leases.token_of(observation.lease) == token

    async def is_over(self, token: Token) -> bool:
        """Whether the session has ended for good, so that its claims are void.

        Asks the server, at most about once a second for a session.

        Raises:
            ApiError: the server does not answer.
        """
        if token in self._over:
            return True
        if self.is_live(token):
            self._missing.pop(token, None)
            return False
        now = self._clock.monotonic()
        asked = self._asked.get(token)
        if asked is not None and now < asked + self._config.retry_s:
            return self._missing_long(token, now)
        self._asked[token] = now
        name = self._config.lease_name(token.member)
        try:
            lease = await self._client.get(LEASE, name, self._config.namespace)
        except NotFound:
            return self._has_no_lease(token, now)
        present = leases.token_of(lease)
        epoch = lease.spec.lease_transitions or 0
        if present == token:
            self._missing.pop(token, None)
            self._asked.pop(token, None)
            self._observe(lease)
            return False
        if epoch > token.epoch or (epoch == token.epoch and present is None):
            self._forget_member(token)
            return True
        # An epoch that is too low: the Lease was deleted and recreated. As good as missing.
        return self._has_no_lease(token, now)

    async def run(self) -> None:
        """End silent sessions and delete old Leases, until cancelled."""
        await self._informer.synced.wait()
        while True:
            self._moved.clear()
            due = await self._sweep()
            try:
                async with self._clock.timeout(max(TICK_S, due - self._clock.monotonic())):
                    await self._moved.wait()
            except TimeoutError:
                continue

    # --- ending sessions ------------------------------------------------------------------------

    async def _sweep(self) -> float:
        """Do what is due; when the next thing will be."""
        next_due = self._clock.monotonic() + self._config.forget_s
        for observation in self._observations:
            if observation.lease.metadata.name == self._own:
                continue
            due = self._due(observation)
            if due <= self._clock.monotonic():
                await self._end(observation)
                due = self._clock.monotonic() + self._config.retry_s  # should it not have worked
            next_due = min(next_due, due)
        return next_due

    def _due(self, observation: Observation) -> float:
        if leases.token_of(observation.lease) is None:
            return observation.since + self._config.forget_s
        return observation.due(self._config.ttl_s)

    async def _end(self, observation: Observation) -> None:
        """End a silent session, or delete a Lease that has been free for long."""
        meta = observation.lease.metadata
        token = leases.token_of(observation.lease)
        fence = preconditions(meta)
        try:
            async with self._clock.timeout(self._config.request_s):
                if token is None:
                    await self._client.delete_as_read(LEASE, observation.lease)
                    return
                patch = {"metadata": fence, "spec": {"holderIdentity": ""}}
                lease = await self._client.patch(LEASE, meta.name, meta.namespace, patch=patch)
        except NotFound:
            self._observations.forget(meta.name)
            self._notify()
        except Conflict:
            await self._look_again(meta.name)
        except (ApiError, TimeoutError) as error:
            self._log.warning("silent session not ended", lease=meta.name, error=error)
        else:
            self._log.info("silent session ended", session=str(token))
            self._forget_member(token)
            self._observe(lease)

    async def _look_again(self, name: str) -> None:
        """It has moved without our hearing of it."""
        try:
            self._observe(await self._client.get(LEASE, name, self._config.namespace))
        except ApiError as error:
            self._log.debug("lease not read", lease=name, error=error)

    def _missing_long(self, token: Token, now: float) -> bool:
        since = self._missing.get(token)
        if since is None or now < since + self._config.ttl_s:
            return False
        self._forget_member(token)
        return True

    def _has_no_lease(self, token: Token, now: float) -> bool:
        """A session without its Lease cannot have been renewed since the server's answer."""
        self._missing.setdefault(token, now)
        return self._missing_long(token, now)

    def _forget_member(self, token: Token) -> None:
        self._over[token] = None
        self._missing.pop(token, None)
        self._asked.pop(token, None)
        while len(self._over) > _REMEMBERED:
            del self._over[next(iter(self._over))]

    # --- news -----------------------------------------------------------------------------------

    def _seen(self, lease: Lease) -> None:
        self._observe(lease)

    def _observe(self, lease: Lease) -> None:
        before = self._observations.get(lease.metadata.name)
        changed = self._observations.see(lease, self._clock.monotonic())
        if before is None or leases.farms_of(before.lease) != leases.farms_of(lease):
            changed = True
        self._moved.set()
        if changed:
            self._notify()

    def _gone(self, lease: Lease) -> None:
        self._observations.forget(lease.metadata.name)
        self._moved.set()
        self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()
