"""Leases as the command line asks for them, and the state in which they are."""

from collections.abc import Sequence
from dataclasses import dataclass

import click

from grange.api import codec
from grange.api.kinds.machinelease import (
    EXPIRED,
    GRANTED,
    REJECTED,
    MachineLease,
    PoolRequest,
)
from grange.api.meta import Document
from grange.cli.readiness import WaitState


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """A lease that is asked for.

    Attributes:
        machines: how many of which pool.
        name: of the lease; empty for one that the server generates.
        holder: who asks, for others to read.
        priority: higher ones are granted first.
        semaphores: limits of the policy of which it takes one each.
        ttl_s: it ends without a heartbeat for so long; None for never.
        expected_s: how long it will be held, for estimates; None where unknown.
        cleaning: ``Automatic`` or ``Manual``.
    """

    machines: Sequence[PoolRequest]
    name: str = ""
    holder: str = ""
    priority: int = 0
    semaphores: Sequence[str] = ()
    ttl_s: int | None = None
    expected_s: int | None = None
    cleaning: str = ""

    def manifest(self, renew_time: str) -> Document:
        """The lease as a document.

        Args:
            renew_time: of the first heartbeat, as RFC 3339.
        """
        spec: Document = {
            "machines": [{"pool": item.pool, "count": item.count} for item in self.machines],
            "holder": {"kind": "User", "name": self.holder},
        }
        if self.ttl_s is not None:
            spec |= {"ttlSeconds": self.ttl_s, "renewTime": renew_time}
        for field, value in (
            ("priority", self.priority),
            ("semaphores", list(self.semaphores)),
            ("expectedSeconds", self.expected_s),
            ("cleaning", self.cleaning),
        ):
            if value:
                spec[field] = value
        metadata = {"name": self.name} if self.name else {"generateName": "lease-"}
        return {
            "apiVersion": "grange.dev/v1alpha1",
            "kind": "MachineLease",
            "metadata": metadata,
            "spec": spec,
        }


def pool_requests(words: Sequence[str], count: int | None) -> tuple[PoolRequest, ...]:
    """The machines that ``--pool P=N`` and ``--pool P --count N`` ask for.

    Args:
        words: the values of ``--pool``.
        count: for pools without a number; 1 if None.

    Raises:
        click.UsageError: a value is none of a pool, or all pools have a number and ``count``, too.
    """
    found = []
    for word in words:
        name, equals, number = word.rpartition("=")
        if not equals:
            found.append(PoolRequest(pool=word, count=1 if count is None else count))
        elif not name or not (number.isascii() and number.isdecimal()):
            raise click.UsageError(f"--pool {word}: write POOL or POOL=N, for example workers=3")
        else:
            found.append(PoolRequest(pool=name, count=int(number)))
    if count is not None and all("=" in word for word in words):
        raise click.UsageError(f"--count {count}: every pool has a number already; leave it out")
    return tuple(found)


def view(document: Document) -> MachineLease:
    """The typed view of a lease's document."""
    return codec.convert(document, MachineLease)


def node_names(lease: MachineLease) -> list[str]:
    """The granted machines, pool by pool."""
    return [item.node for item in lease.status.machines]


def session_of(lease: MachineLease) -> str:
    """The object that the lease belongs to, as ``TestSession/qps``; empty for none."""
    owners = [owner for owner in lease.metadata.owner_references if owner.controller]
    return f"{owners[0].kind}/{owners[0].name}" if owners else ""


def granted(document: Document | None) -> WaitState:
    """Whether a lease has its machines, and what it waits for."""
    if document is None:
        return WaitState(done=False, text="it was deleted", failed=True)
    lease = view(document)
    status = lease.status
    if lease.metadata.deletion_timestamp is not None:
        return WaitState(done=False, text="it was released", failed=True)
    if status.phase == GRANTED:
        return WaitState(done=True, text=", ".join(node_names(lease)))
    if status.phase in (REJECTED, EXPIRED):
        text = f"{status.phase.lower()}: {_why(lease)}"
        return WaitState(done=False, text=text, failed=True)
    return WaitState(done=False, text=queued_text(lease))


def queued_text(lease: MachineLease) -> str:
    """Position, reason and expected start of a lease that waits."""
    status = lease.status
    parts = [f"position {status.position} in the queue" if status.position else "queued"]
    if why := _why(lease):
        parts.append(why)
    if status.expected_start:
        parts.append(f"expected at {status.expected_start}")
    return "; ".join(parts)


def _why(lease: MachineLease) -> str:
    return lease.status.message or lease.status.reason
