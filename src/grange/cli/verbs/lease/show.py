"""``grange lease list`` and ``grange lease pools``."""

from collections.abc import Sequence

import click

from grange.api.kinds import LEASEPOLICY, MACHINELEASE, NODE, NODEPOOL
from grange.api.kinds.leasepolicy import POLICY_NAME, LeasePolicySpec
from grange.api.kinds.machinelease import GRANTED, QUEUED, MachineLease
from grange.api.kinds.nodepool import NodePool
from grange.api.meta import Document
from grange.api.printing import cells
from grange.api.status import Forbidden, NotFound
from grange.cli import options, session, terminal
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.machineleases import lease_requests, pool_counts
from grange.cli.machineleases.pool_counts import PoolCounts
from grange.cli.printers import documents, table

_HEAD = ["NAME", "MACHINES", "PHASE", "POSITION", "HOLDER", "NODES", "AGE", "REASON"]
_POOLS_HEAD = ["POOL", "NODES", "FREE", "LEASED", "BUSY", "DIRTY", "UNUSABLE", "HOLDERS"]


@click.command("list", cls=Command, examples=("grange lease list", "grange lease list -A"))
@click.option("-A", "--all-namespaces", is_flag=True, help="Leases of all namespaces.")
@options.SELECTOR
@options.output(documents.OBJECT)
@options.connected
def list_(env: Environment, target: session.ClusterTarget, selector: str, output: str) -> None:
    """List leases: those that have machines first, then the queue in its order."""

    async def verb(opened: session.ApiSession) -> int:
        found = await opened.listed(MACHINELEASE, selector=selector)
        found.sort(key=_order)
        if output:
            pairs = [(MACHINELEASE, document) for document in found]
            terminal.write(documents.render(output, pairs, single=False))
        elif not found:
            terminal.echo("No leases found.", err=True)
        else:
            now = env.clock.now().timestamp()
            everywhere = not opened.namespace
            leases = [lease_requests.view(item) for item in found]
            rows = [
                [*([item.metadata.namespace] if everywhere else []), *row(item, now)]
                for item in leases
            ]
            heading = [*(["NAMESPACE"] if everywhere else []), *_HEAD]
            terminal.echo("\n".join(table.render([heading, *rows])))
        return 0

    session.run(env, target, verb)


def _order(document: Document) -> tuple[bool, int, str]:
    """Granted ones, then by position; ended ones have none and come with the granted."""
    status = document.get("status") or {}
    waits = status.get("phase", QUEUED) == QUEUED
    created = str(document["metadata"].get("creationTimestamp") or "")
    return waits, status.get("position") or 0, created


def row(lease: MachineLease, now: float) -> list[str]:
    """The cells of a lease."""
    spec, status = lease.spec, lease.status
    granted = status.phase == GRANTED
    return [
        lease.metadata.name,
        ",".join(f"{item.pool}={item.count}" for item in spec.machines),
        status.phase or QUEUED,
        str(status.position) if status.position else "",
        f"{spec.holder.kind}/{spec.holder.name}" if spec.holder.name else "",
        ",".join(lease_requests.node_names(lease)),
        cells.age_of(lease.metadata.creation_timestamp or "", now),
        "" if granted else status.reason,
    ]


@click.command("pools", cls=Command, examples=("grange lease pools",))
@options.output(documents.REPORT)
@options.connected
def pools(env: Environment, target: session.ClusterTarget, output: str) -> None:
    """Show the machines of each pool: free, leased and by whom, busy with pods, dirty, unusable."""

    async def verb(opened: session.ApiSession) -> int:
        nodes = (await opened.client.list(NODE)).items
        pods = await pool_counts.keepers(opened, nodes)
        found = pool_counts.counts(nodes, await _node_pools(opened), pods or {})
        policy = await _policy(opened)
        if output:
            terminal.write(documents.report(output, pools_document(found, policy)))
        elif not found:
            terminal.echo(
                "No pools: no node has the label pool; grange up --pool NAME=COUNT makes some.",
                err=True,
            )
        else:
            rows = [_pool_row(pool, policy) for pool in found]
            terminal.echo("\n".join(table.render([_POOLS_HEAD, *rows])))
            if policy.paused:
                terminal.echo("Leases are paused; grange lease resume ends that.", err=True)
            for pool in found:
                if pool.busy:
                    terminal.echo(f"pool {pool.name}: {pool_counts.busy_text(pool)}", err=True)
        if pods is None:
            terminal.echo(pool_counts.PODS_UNREAD, err=True)
        return 0

    session.run(env, target, verb)


async def _node_pools(opened: session.ApiSession) -> Sequence[NodePool]:
    try:
        return (await opened.client.list(NODEPOOL)).items
    except (NotFound, Forbidden):  # a server without node pools, or a user who may not see them
        return ()


async def _policy(opened: session.ApiSession) -> LeasePolicySpec:
    try:
        return (await opened.client.get(LEASEPOLICY, POLICY_NAME)).spec
    except (NotFound, Forbidden):
        return LeasePolicySpec()


def _pool_row(pool: PoolCounts, policy: LeasePolicySpec) -> list[str]:
    holders = [f"{name} ({count})" for name, count in pool.holders.items()]
    draining = ["draining"] if pool.name in policy.draining_pools else []
    numbers = (pool.nodes, pool.free, pool.leased, pool.busy, pool.dirty, pool.unusable)
    return [pool.name, *map(str, numbers), ", ".join([*draining, *holders])]


def pools_document(found: Sequence[PoolCounts], policy: LeasePolicySpec) -> Document:
    """The pools for programs."""
    return {
        "paused": policy.paused,
        "pools": [
            {
                "name": pool.name,
                "nodes": pool.nodes,
                "free": pool.free,
                "leased": pool.leased,
                "busy": pool.busy,
                "dirty": pool.dirty,
                "unusable": pool.unusable,
                "draining": pool.name in policy.draining_pools,
                "holders": pool.holders,
                "pods": pool.pods,
            }
            for pool in found
        ],
    }
