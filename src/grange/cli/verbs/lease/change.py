"""``grange lease renew``, ``release`` and ``clean``."""

import click

from grange.api import timestamps
from grange.api.kinds import MACHINELEASE, NODE
from grange.api.kinds.machinelease import (
    DIRTY,
    EXPIRED,
    REJECTED,
    STATE_ANNOTATION,
)
from grange.api.meta import Document
from grange.cli import completers, options, session
from grange.cli.command import Command
from grange.cli.durations import parse_term
from grange.cli.environment import Environment
from grange.cli.machineleases import lease_requests
from grange.cli.printers import documents
from grange.cli.results import Results

_NAMES = click.argument(
    "names", nargs=-1, required=True, shell_complete=completers.of_kind(MACHINELEASE)
)
_NODES = click.argument("nodes", nargs=-1, required=True, shell_complete=completers.of_kind(NODE))


@click.command(cls=Command, examples=("grange lease renew lease-x7k2p --ttl 30m",))
@_NAMES
@click.option("--ttl", default="", help="A new TTL, for example 30m; the lease's by default.")
@options.output(documents.OBJECT)
@options.connected
def renew(
    env: Environment, target: session.ClusterTarget, names: tuple[str, ...], ttl: str, output: str
) -> None:
    """Renew the leases NAME…: their TTL begins again."""
    ttl_s = max(1, round(parse_term("--ttl", ttl))) if ttl else None

    async def verb(opened: session.ApiSession) -> int:
        results = Results(output)
        for name in names:
            with results.refusals.of_one():
                changed = await renew_one(opened, _plain(name), ttl_s)
                seconds = changed["spec"]["ttlSeconds"]
                results.add(MACHINELEASE, changed, f"{_label(name)} renewed for {seconds} s")
        return results.end()

    session.run(env, target, verb)


async def renew_one(opened: session.ApiSession, name: str, ttl_s: int | None) -> Document:
    """Renew a lease; the lease as it is now.

    Raises:
        click.ClickException: it has ended, or has no TTL to renew.
    """
    found = await opened.document(MACHINELEASE, name)
    lease = lease_requests.view(found)
    if lease.status.phase in (EXPIRED, REJECTED) or lease.metadata.deletion_timestamp:
        ended = lease.status.phase.lower() if lease.status.phase else "released"
        raise click.ClickException(f"{_label(name)} is {ended}; acquire another one")
    if ttl_s is None and lease.spec.ttl_seconds is None:
        raise click.ClickException(
            f"{_label(name)} has no TTL and lasts until it is released; --ttl gives it one"
        )
    spec: Document = {"renewTime": timestamps.rfc3339_micro(opened.env.clock.now())}
    if ttl_s is not None:
        spec["ttlSeconds"] = ttl_s
    patch = {"metadata": {"uid": lease.metadata.uid}, "spec": spec}
    await opened.client.patch(MACHINELEASE, name, lease.metadata.namespace, patch=patch)
    return {"kind": MACHINELEASE.kind, **await opened.document(MACHINELEASE, name)}


@click.command(cls=Command, examples=("grange lease release lease-x7k2p",))
@_NAMES
@options.output(documents.OBJECT)
@options.connected
def release(
    env: Environment, target: session.ClusterTarget, names: tuple[str, ...], output: str
) -> None:
    """Give the machines of the leases NAME… back, or leave the queue.

    A machine is free when no pod of the lease is left on it. The lease of a test session is released
    by the session: grange test cancel.
    """

    async def verb(opened: session.ApiSession) -> int:
        results = Results(output)
        for name in names:
            with results.refusals.of_one():
                released = await release_one(opened, _plain(name))
                results.add(MACHINELEASE, released, f"{_label(name)} released")
        return results.end()

    session.run(env, target, verb)


async def release_one(opened: session.ApiSession, name: str) -> Document:
    """Release a lease; the lease as it was before.

    Raises:
        click.ClickException: a session has it.
        NotFound: there is none.
    """
    found = await opened.document(MACHINELEASE, name)
    lease = lease_requests.view(found)
    if owner := lease_requests.session_of(lease):
        kind, _, owner_name = owner.partition("/")
        remedy = f"grange test cancel {owner_name}" if kind == "TestSession" else f"delete {owner}"
        raise click.ClickException(f"{_label(name)} belongs to {owner}; {remedy} releases it")
    await opened.client.delete(MACHINELEASE, name, lease.metadata.namespace, uid=lease.metadata.uid)
    return found


@click.command(cls=Command, examples=("grange lease clean vm-2 vm-3",))
@_NODES
@options.output(documents.OBJECT)
@options.connected
def clean(
    env: Environment, target: session.ClusterTarget, nodes: tuple[str, ...], output: str
) -> None:
    """Mark the machines NODE… clean: those of released leases with manual cleaning are free again."""

    async def verb(opened: session.ApiSession) -> int:
        results = Results(output)
        for name in nodes:
            with results.refusals.of_one():
                document, line = await clean_one(opened, name.removeprefix("node/"))
                results.add(NODE, document, line)
        return results.end()

    session.run(env, target, verb)


async def clean_one(opened: session.ApiSession, name: str) -> tuple[Document, str]:
    """Mark a machine clean; the node as it is now, and what was done.

    The write fails if the machine has changed hands since it was read.

    Raises:
        Conflict: the node has changed meanwhile.
        NotFound: there is no such node.
    """
    found = await opened.document(NODE, name)
    meta = found["metadata"]
    if (meta.get("annotations") or {}).get(STATE_ANNOTATION) != DIRTY:
        return found, f"node/{name} is not dirty; left as it is"
    patch = {
        "metadata": {
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
            "annotations": {STATE_ANNOTATION: None},
        }
    }
    await opened.client.patch(NODE, name, patch=patch)
    return await opened.document(NODE, name), f"node/{name} marked clean"


def _plain(word: str) -> str:
    return word.rpartition("/")[2]


def _label(word: str) -> str:
    return f"{MACHINELEASE.short_names[0]}/{_plain(word)}"
