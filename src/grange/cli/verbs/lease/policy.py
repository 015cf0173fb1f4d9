"""``grange lease pause``, ``resume``, ``drain-pool`` and ``undrain-pool``: changes of the policy."""

from collections.abc import Callable

import click

from grange.api.kinds import LEASEPOLICY, NODE
from grange.api.kinds.leasepolicy import POLICY_NAME, LeasePolicySpec
from grange.api.kinds.machinelease import POOL_LABEL, pool_of
from grange.api.meta import Document, preconditions
from grange.api.status import AlreadyExists, Conflict, Forbidden, NotFound
from grange.cli import options, session, terminal
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.printers import documents
from grange.cli.results import Results

_ATTEMPTS = 5
_POOLS = click.argument("pools", nargs=-1, required=True)


@click.command(cls=Command, examples=("grange lease pause",))
@options.output(documents.OBJECT)
@options.connected
def pause(env: Environment, target: session.ClusterTarget, output: str) -> None:
    """Grant no lease until resumed; what is granted stays so."""
    _change(env, target, output, lambda _: {"paused": True}, "leases are paused")


@click.command(cls=Command, examples=("grange lease resume",))
@options.output(documents.OBJECT)
@options.connected
def resume(env: Environment, target: session.ClusterTarget, output: str) -> None:
    """Grant leases again."""
    _change(env, target, output, lambda _: {"paused": False}, "leases are granted again")


@click.command("drain-pool", cls=Command, examples=("grange lease drain-pool workers",))
@_POOLS
@options.output(documents.OBJECT)
@options.connected
def drain_pool(
    env: Environment, target: session.ClusterTarget, pools: tuple[str, ...], output: str
) -> None:
    """Grant no more machines of POOL…; those that are granted stay so until they are released."""
    text = f"no more machines of {', '.join(pools)} are granted"

    async def verb(opened: session.ApiSession) -> int:
        results = Results(output)
        results.add(LEASEPOLICY, await change(opened, lambda spec: drained(spec, pools)), text)
        for pool in await unknown(opened, pools):
            terminal.echo(f"Warning: no node has the label {POOL_LABEL}={pool} now", err=True)
        return results.end()

    session.run(env, target, verb)


@click.command("undrain-pool", cls=Command, examples=("grange lease undrain-pool workers",))
@_POOLS
@options.output(documents.OBJECT)
@options.connected
def undrain_pool(
    env: Environment, target: session.ClusterTarget, pools: tuple[str, ...], output: str
) -> None:
    """Grant machines of POOL… again."""
    text = f"machines of {', '.join(pools)} are granted again"
    _change(env, target, output, lambda spec: undrained(spec, pools), text)


def drained(spec: LeasePolicySpec, pools: tuple[str, ...]) -> Document:
    """The change that drains pools."""
    return {"drainingPools": sorted({*spec.draining_pools, *pools})}


async def unknown(opened: session.ApiSession, pools: tuple[str, ...]) -> list[str]:
    """The pools that no node is in, as far as the user may see nodes."""
    try:
        nodes = (await opened.client.list(NODE)).items
    except Forbidden:
        return []
    known = {pool_of(node) for node in nodes}
    return [pool for pool in pools if pool not in known]


def undrained(spec: LeasePolicySpec, pools: tuple[str, ...]) -> Document:
    """The change that ends the draining of pools.

    Raises:
        click.ClickException: one of them is not being drained.
    """
    for pool in pools:
        if pool not in spec.draining_pools:
            listed = ", ".join(spec.draining_pools) or "none"
            raise click.ClickException(f"pool {pool} is not drained; drained pools: {listed}")
    return {"drainingPools": [pool for pool in spec.draining_pools if pool not in pools]}


async def change(
    opened: session.ApiSession, make: Callable[[LeasePolicySpec], Document]
) -> Document:
    """Change the policy, which is created where there is none; the policy as it is now.

    Args:
        opened: the connection.
        make: the fields to set, from the spec as it is.

    Raises:
        Conflict: others change it all the time.
    """
    for attempt in range(_ATTEMPTS):
        try:
            await _write(opened, make)
        except (Conflict, AlreadyExists):
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            break
    return await opened.document(LEASEPOLICY, POLICY_NAME)


async def _write(opened: session.ApiSession, make: Callable[[LeasePolicySpec], Document]) -> None:
    try:
        found = await opened.client.get(LEASEPOLICY, POLICY_NAME)
    except NotFound:
        fresh: Document = {
            "apiVersion": LEASEPOLICY.api_version,
            "kind": LEASEPOLICY.kind,
            "metadata": {"name": POLICY_NAME},
            "spec": make(LeasePolicySpec()),
        }
        await opened.client.create(LEASEPOLICY, fresh)
        return
    patch = {"metadata": preconditions(found.metadata), "spec": make(found.spec)}
    await opened.client.patch(LEASEPOLICY, POLICY_NAME, patch=patch)


def _change(
    env: Environment,
    target: session.ClusterTarget,
    output: str,
    make: Callable[[LeasePolicySpec], Document],
    text: str,
) -> None:
    async def verb(opened: session.ApiSession) -> int:
        results = Results(output)
        results.add(LEASEPOLICY, await change(opened, make), text)
        results.end()
        return 0

    session.run(env, target, verb)
