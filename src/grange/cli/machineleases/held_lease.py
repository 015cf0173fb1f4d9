"""Holds a lease: heartbeats while it waits and while a program uses its machines, then release."""

from collections.abc import Awaitable, Callable

from grange.api import timestamps
from grange.api.kinds import MACHINELEASE
from grange.api.kinds.machinelease import EXPIRED, GRANTED, REJECTED, MachineLease
from grange.api.meta import Document
from grange.api.status import Conflict, NotFound, ServiceUnavailable, Timeout
from grange.base.errors import GrangeError
from grange.base.tasks import Nursery, cleanup
from grange.cli import terminal
from grange.cli.session import ApiSession

HOLD_TTL_S = 60
"""TTL of a lease that is held for a program, unless another one is given."""

_BEATS_PER_TTL = 3  # two may fail
_BEAT_MAX_S = 10.0  # a program must not use machines for long that were taken from it
_RETRY_S = 1.0
_RELEASE_S = 30.0


class LeaseLost(GrangeError):
    """The machines are not the holder's any more; the message has the reason."""


class HeldLease:
    """A lease that this process has asked for.

    Args:
        opened: the connection.
        lease: as it was created.
    """

    def __init__(self, opened: ApiSession, lease: MachineLease) -> None:
        self._opened = opened
        self.name = lease.metadata.name
        self._namespace = lease.metadata.namespace
        self._uid = lease.metadata.uid
        self._ttl_s = lease.spec.ttl_seconds
        self._granted = False

    async def beat(self) -> None:
        """Renew the lease until cancelled; return at once where it has no TTL.

        Raises:
            LeaseLost: it was deleted, has expired, or could not be renewed within its TTL.
        """
        if self._ttl_s is None:
            return
        clock = self._opened.env.clock
        deadline = clock.monotonic() + self._ttl_s
        usual_s = min(self._ttl_s / _BEATS_PER_TTL, _BEAT_MAX_S)
        wait_s = usual_s
        while True:
            await clock.sleep(wait_s)
            started = clock.monotonic()
            try:
                lease = await self._renew()
            except (ServiceUnavailable, Timeout, Conflict) as error:
                if clock.monotonic() >= deadline:
                    raise LeaseLost(
                        f"{self.label} could not be renewed for {self._ttl_s} s: {error}"
                    ) from error
                wait_s = min(_RETRY_S, usual_s)
                continue
            except NotFound as error:
                raise LeaseLost(f"{self.label} was released while it was in use") from error
            self._check(lease)
            deadline, wait_s = started + self._ttl_s, usual_s

    @property
    def label(self) -> str:
        """Kind and name, as other verbs take them."""
        return f"{MACHINELEASE.short_names[0]}/{self.name}"

    async def use(self, program: Callable[[], Awaitable[int]]) -> int:
        """Run a program on the granted machines; its exit code.

        The program is cancelled when the lease is lost.

        Raises:
            LeaseLost: it was lost while the program ran.
        """
        self._granted = True
        code = 1
        async with Nursery("lease") as nursery:
            nursery.start(self.beat())
            code = await program()
            nursery.cancel()
        return code

    async def release(self) -> None:
        """Delete the lease, even while cancelled; a failure is printed, not raised."""
        env = self._opened.env
        try:
            await cleanup(self._delete(), limit_s=_RELEASE_S, clock=env.clock, log=env.log)
        except GrangeError as error:
            terminal.echo(
                f"{self.label} was not released: {error}; run grange lease release {self.name}",
                err=True,
            )

    async def _delete(self) -> None:
        try:
            await self._opened.client.delete(
                MACHINELEASE, self.name, self._namespace, uid=self._uid
            )
        except (NotFound, Conflict):  # it is gone, or another one has its name
            return

    async def _renew(self) -> MachineLease:
        now = timestamps.rfc3339_micro(self._opened.env.clock.now())
        patch: Document = {"metadata": {"uid": self._uid}, "spec": {"renewTime": now}}
        return await self._opened.client.patch(
            MACHINELEASE, self.name, self._namespace, patch=patch
        )

    def _check(self, lease: MachineLease) -> None:
        """Raise ``LeaseLost`` if the lease has ended."""
        phase = lease.status.phase
        if lease.metadata.deletion_timestamp is not None:
            raise LeaseLost(f"{self.label} was released while it was in use")
        if phase == EXPIRED or (self._granted and phase not in (GRANTED, "")):
            why = lease.status.message or lease.status.reason
            raise LeaseLost(f"{self.label} is {phase.lower()} while it was in use: {why}")
        if phase == REJECTED:
            return  # who waits for it reports it
