"""A member's session: a Lease that is renewed, an epoch that rises, and an end that comes in time.

Theory of operation. A renewal is trusted from the moment it was *sent*, for the Lease's duration
less a margin, by the member's own clock, which goes on while its machine is suspended. Others may
end the session only after they have seen the Lease unchanged for its whole duration, which begins
when the server took the renewal or later, and only by a write on the Lease that any renewal in
between would make fail. So the member has stopped before another member can take its place, independent
of wall clocks.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from grange.api import timestamps
from grange.api.kinds import LEASE
from grange.api.kinds.lease import Lease
from grange.api.meta import Document, preconditions
from grange.api.status import ApiError, Conflict, NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import CollectorRegistry, registry
from grange.base.rng import Stream
from grange.base.tasks import Nursery, cleanup
from grange.client.client import Client
from grange.reconcile.farm import leases
from grange.reconcile.farm.config import TICK_S, FarmConfig
from grange.reconcile.farm.errors import SessionLost
from grange.reconcile.farm.leases import Observation, Token
from grange.reconcile.farm.metrics import instruments

_RELEASE_S = 2.0
_NONCE = 10
_ALIVE = (
    3  # sights of a Lease that differ: one renewal may have been on its way when its holder died
)


class Session:
    """The right to write, for a while.

    Args:
        token: identity.
        clock: the member's own.
        valid_until: by that clock's ``elapsed``, which a suspended machine does not stop.
        margin_s: how long a write that was cut off may be under way.

    Attributes:
        token: identity.
        ended: set when it is over; it never comes back.
    """

    def __init__(
        self, token: Token, clock: Clock, valid_until: float, *, margin_s: float = 3.0
    ) -> None:
        self.token = token
        self.ended = asyncio.Event()
        self._clock = clock
        self._valid_until = valid_until
        self._margin_s = margin_s
        self._unsettled_until = float("-inf")

    def remaining_s(self) -> float:
        """Seconds that are left; zero when it is over."""
        if self.ended.is_set():
            return 0.0
        return max(0.0, self._valid_until - self._clock.elapsed())

    def check(self) -> float:
        """Seconds that are left.

        Raises:
            SessionLost: none are.
        """
        remaining = self.remaining_s()
        if remaining <= 0.0:
            self.end()
            raise SessionLost(f"session {self.token} has ended: nothing is written under it")
        return remaining

    def cut_off(self) -> float:
        """A write ended without an answer: until when it may still arrive (monotonic seconds)."""
        self._unsettled_until = self._clock.monotonic() + self._margin_s
        return self._unsettled_until

    @property
    def is_settled(self) -> bool:
        """Whether no write that was cut off may still arrive."""
        return self._unsettled_until <= self._clock.monotonic()

    def extend(self, valid_until: float) -> None:
        """A renewal was taken; it may not have come too late."""
        if self.remaining_s() > 0.0:
            self._valid_until = max(self._valid_until, valid_until)

    def end(self) -> None:
        """It is over; idempotent."""
        self.ended.set()


class _Lost(Exception):
    """Another member has the Lease, or none."""


class SessionKeeper:
    """Acquires a session, renews it, and acquires another when it is lost.

    Args:
        client: to the API, not fenced.
        config: of the member.
        farms: what the member takes part in: name and label selector; asked at every renewal.
        report: the member's report on its Lease; read at every renewal.
        clock, rng, log: of the process.
        metrics: where writes of the Lease are counted.
    """

    def __init__(  # noqa: PLR0913  the tools are handed in, and two values on the Lease
        self,
        client: Client,
        config: FarmConfig,
        *,
        farms: Callable[[], Mapping[str, str]] = dict,
        report: Callable[[], Document] = dict,
        clock: Clock,
        rng: Stream,
        log: Logger,
        metrics: CollectorRegistry | None = None,
    ) -> None:
        self._client = client
        self._config = config
        self._farms = farms
        self._report = report
        writes = instruments(metrics if metrics is not None else registry()).lease_writes
        self._written, self._unwritten = writes.labels("ok"), writes.labels("failed")
        self._clock = clock
        self._rng = rng
        self._log = log.bind(member=config.member)
        self._name = config.lease_name(config.member)
        self._version = ""  # of the Lease as we last wrote or read it
        self._epoch = 0  # the highest that this process has had
        self._current: Session | None = None
        self._urged = asyncio.Event()
        self._news = asyncio.Event()

    @property
    def current(self) -> Session | None:
        """The session, while there is one."""
        session = self._current
        return session if session is not None and session.remaining_s() > 0.0 else None

    async def following(self, last: Session | None) -> Session:
        """Wait for a session other than the last one; sessions that came and went are skipped."""
        while (session := self.current) is None or session is last:
            await self._news.wait()
        return session

    def request_renewal(self) -> None:
        """There is news for the report: renew soon, but not within a second of the last time."""
        self._urged.set()

    async def run(self) -> None:
        """Keep a session until cancelled; then give the Lease back, so that no other member need wait."""
        while True:
            session = await self._acquire()
            self._log.info("session begins", epoch=session.token.epoch)
            self._publish(session)
            try:
                await self._hold(session)
            except asyncio.CancelledError:
                session.end()
                self._publish(None)
                if session.is_settled:  # or the others wait: something of ours may still arrive
                    release = self._release(session.token)
                    await cleanup(release, limit_s=_RELEASE_S, clock=self._clock, log=self._log)
                raise
            session.end()
            self._publish(None)
            self._log.warning("session lost", epoch=session.token.epoch)

    def _publish(self, session: Session | None) -> None:
        self._current = session
        self._news.set()
        self._news = asyncio.Event()

    # --- acquiring ------------------------------------------------------------------------------

    async def _acquire(self) -> Session:
        """Wait until the Lease is free or its holder has been silent for a whole term; take it."""
        nonce = self._rng.suffix(_NONCE)
        seen: Observation | None = None
        triggers = 0
        while True:
            try:
                async with self._clock.timeout(self._config.request_s):
                    lease = await self._read()
                    if lease is None:
                        return await self._write(Token(self._config.member, nonce, self._epoch + 1))
                    now = self._clock.monotonic()
                    fresh = Observation(lease, now)
                    changed = seen is None or seen.signs != fresh.signs
                    if seen is None or changed:
                        seen = fresh
                        triggers += 1
                    if self._is_free(lease, nonce, seen.due(self._config.ttl_s) <= now):
                        epoch = max(self._epoch, lease.spec.lease_transitions or 0) + 1
                        return await self._write(Token(self._config.member, nonce, epoch), lease)
                    if changed and triggers == _ALIVE:
                        self._log.warning("another process has this name: waiting for its end")
            except (ApiError, TimeoutError) as error:
                self._log.debug("session not acquired", error=error)
            await self._clock.sleep(self._config.retry_s)

    def _is_free(self, lease: Lease, nonce: str, silent: bool) -> bool:  # noqa: FBT001  a fact, not a mode
        token = leases.token_of(lease)
        # A write of ours whose answer was lost may have made it: then it is renewed.
        return silent or self._config.sole_bearer or token is None or token.nonce == nonce

    async def _read(self) -> Lease | None:
        try:
            return await self._client.get(LEASE, self._name, self._config.namespace)
        except NotFound:
            return None

    async def _write(self, token: Token, lease: Lease | None = None) -> Session:
        """Write ourselves as the holder: a new Lease, or in the place of what was read.

        Raises:
            ApiError: another member was faster, or the outcome is not known.
        """
        sent = self._clock.elapsed()
        stamp = timestamps.rfc3339_micro(self._clock.now())
        spec = leases.spec_of(token, self._config, renewed=stamp, acquired=stamp)
        marks = leases.marks(self._config, self._farms(), self._report())
        if lease is None:
            meta = {"name": self._name, "namespace": self._config.namespace, **marks}
            document: Document = {
                "apiVersion": LEASE.api_version,
                "kind": LEASE.kind,
                "metadata": meta,
                "spec": spec,
            }
            written = await self._client.create(LEASE, document, self._config.namespace)
        else:
            fence = preconditions(lease.metadata)
            patch = {"metadata": {**fence, **marks}, "spec": spec}
            written = await self._client.patch(
                LEASE, self._name, self._config.namespace, patch=patch
            )
        self._version = written.metadata.resource_version
        self._epoch = token.epoch
        valid_until = sent + self._config.valid_s
        return Session(token, self._clock, valid_until, margin_s=self._config.margin_s)

    # --- renewing -------------------------------------------------------------------------------

    async def _hold(self, session: Session) -> None:
        """Renew until the session is lost or its time is over."""
        wait_s = self._config.renew_s
        while (remaining := session.remaining_s()) > 0.0:
            await self._pause(max(TICK_S, min(wait_s, remaining)))
            remaining = session.remaining_s()
            if remaining <= 0.0:
                return
            try:
                async with self._clock.timeout(min(self._config.request_s, remaining)):
                    await self._renew(session)
                wait_s = self._config.renew_s
                self._written.inc()
            except _Lost:
                return
            except (ApiError, TimeoutError) as error:
                self._unwritten.inc()
                self._log.warning("session not renewed", left_s=round(remaining, 3), error=error)
                wait_s = self._config.retry_s

    async def _pause(self, wait_s: float) -> None:
        """Wait until the next renewal; at least a second, where there is that much time."""
        least_s = min(wait_s, self._config.retry_s)
        await self._clock.sleep(least_s)
        try:
            async with self._clock.timeout(max(TICK_S, wait_s - least_s)):
                await self._urged.wait()
        except TimeoutError:
            return

    async def _renew(self, session: Session) -> None:
        self._urged.clear()
        sent = self._clock.elapsed()
        stamp = timestamps.rfc3339_micro(self._clock.now())
        patch = {
            "metadata": {
                "resourceVersion": self._version,
                **leases.marks(self._config, self._farms(), self._report()),
            },
            "spec": leases.spec_of(session.token, self._config, renewed=stamp),
        }
        try:
            lease = await self._client.patch(LEASE, self._name, self._config.namespace, patch=patch)
        except NotFound as error:
            raise _Lost from error
        except Conflict:
            # Another client took it, or wrote something else on it, or a response was lost.
            found = await self._read()
            if found is None or leases.token_of(found) != session.token:
                raise _Lost from None
            self._version = found.metadata.resource_version
            raise
        self._version = lease.metadata.resource_version
        session.extend(sent + self._config.valid_s)

    async def _release(self, token: Token) -> None:
        """Clear the holder of the Lease; the epoch stays, so that the next one is higher."""
        try:
            lease = await self._read()
            if lease is None or leases.token_of(lease) != token:
                return
            fence = preconditions(lease.metadata)
            patch = {"metadata": fence, "spec": {"holderIdentity": ""}}
            await self._client.patch(LEASE, self._name, self._config.namespace, patch=patch)
        except ApiError as error:
            self._log.debug("lease not given back: the others will wait for it", error=error)


async def each_session(
    keeper: SessionKeeper, body: Callable[[Session], Awaitable[None]], *, name: str = "session"
) -> None:
    """Run a body for each session, until cancelled.

    The body is cancelled when its session ends, and has ended before it runs for the next one;
    sessions that came and went meanwhile are skipped. A body that returns early is not run again
    for the same session.

    Raises:
        BaseExceptionGroup: the body failed.
    """
    session: Session | None = None
    while True:
        session = await keeper.following(session)
        async with Nursery(name) as nursery:
            nursery.start(_end_with(session, nursery), name=f"{name} guard")
            await body(session)
            await session.ended.wait()


async def _end_with(session: Session, nursery: Nursery) -> None:
    await session.ended.wait()
    nursery.cancel()
