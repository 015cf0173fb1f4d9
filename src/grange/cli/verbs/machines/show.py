"""``grange machines list`` and ``grange machines pools``."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress

import click

from grange.api.kinds import MACHINE, NODE, NODEPOOL, POD
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import Forbidden
from grange.base.tasks import Nursery
from grange.cli import machine_board, options, session, steady_screen, terminal, watched_object
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.machine_board import MachineSight
from grange.cli.printers import documents

_REFRESH_S = 1.0
_RETRY_S = 0.5
_NONE = "No machines; grange machines pools shows the pools that order them."


@click.command(
    "list",
    cls=Command,
    examples=("grange machines list", "grange machines list --pool builders --watch"),
)
@click.option("--pool", default="", help="Only machines of this NodePool.")
@click.option("-w", "--watch", is_flag=True, help="Show changes until interrupted.")
@options.output(documents.TABLE)
@options.connected
def list_(
    env: Environment,
    target: session.ClusterTarget,
    pool: str,
    watch: bool,  # noqa: FBT001  click passes flags by name
    output: str,
) -> None:
    """List machines: phase and for how long, state of the node, price per hour, pods, reason."""
    if watch and documents.is_document_format(output):
        raise click.UsageError(f"--watch: prints a table; leave out -o {output}")

    async def verb(opened: session.ApiSession) -> int:
        if watch:
            await follow(opened, pool, wide=output == "wide")
        machines = of_pool(await opened.listed(MACHINE, ""), pool)
        if documents.is_document_format(output):
            print_objects(output, MACHINE, machines)
            return 0
        nodes, pods = await _allowed(opened, NODE), await _allowed(opened, POD)
        sight = MachineSight(machines, None if nodes is None else _by_name(nodes), pods)
        shown = machine_board.lines(sight, env.clock.now(), wide=output == "wide")
        terminal.echo("\n".join(shown or [_NONE]), err=not shown)
        return 0

    session.run(env, target, verb)


def print_objects(output: str, kind: AnyKind, found: Sequence[Document]) -> None:
    """Print objects in a format: a List, also of a single one, so that programs can rely on it."""
    pairs = [(kind, item) for item in found]
    terminal.write(documents.render(output, pairs, single=False))


def of_pool(machines: list[Document], pool: str) -> list[Document]:
    """Machines of one pool; of all where it is empty."""
    return [item for item in machines if not pool or item["spec"].get("pool") == pool]


def _by_name(found: list[Document]) -> dict[str, Document]:
    return {item["metadata"]["name"]: item for item in found}


async def _allowed(opened: session.ApiSession, kind: AnyKind) -> list[Document] | None:
    """The objects of all namespaces; None where the user may not list them."""
    try:
        return await opened.listed(kind, "")
    except Forbidden:
        return None


async def follow(opened: session.ApiSession, pool: str, *, wide: bool = False) -> None:
    """Show the machines until interrupted; off a terminal each state is printed once.

    Raises:
        Forbidden: the user may not list machines.
    """
    env = opened.env
    seen = _SeenMachines(opened)
    before: list[list[str]] | None = None
    async with steady_screen.opened(env) as draw, Nursery("machines") as nursery:
        for kind in (MACHINE, NODE, POD):
            nursery.start(seen.watch(kind))
        while True:
            sight = seen.sight(pool)
            if sight is not None:
                rows = machine_board.steady_rows(sight, env.clock.now())
                if env.interactive or rows != before:
                    draw(machine_board.lines(sight, env.clock.now(), wide=wide) or [_NONE])
                before = rows
            await seen.changed(_REFRESH_S if env.interactive else None)


class _SeenMachines:
    """Machines, nodes and pods, kept up to date by watches."""

    def __init__(self, opened: session.ApiSession) -> None:
        self._opened, self._changed = opened, asyncio.Event()
        self._found: dict[str, Mapping[str, Document] | None] = {}

    async def changed(self, within_s: float | None) -> None:
        """Wait until anything changes, or for so many seconds."""
        with suppress(TimeoutError):
            async with self._opened.env.clock.timeout(within_s):
                await self._changed.wait()
        self._changed.clear()

    def sight(self, pool: str) -> MachineSight | None:
        """What was seen last; None before all was seen."""
        if len(self._found) < len((MACHINE, NODE, POD)):
            return None
        machines = self._found[MACHINE.plural] or {}
        pods = self._found[POD.plural]
        return MachineSight(
            of_pool([*machines.values()], pool),
            self._found[NODE.plural],
            None if pods is None else pods.values(),
        )

    async def watch(self, kind: AnyKind) -> None:
        """Keep the objects of a kind up to date.

        Raises:
            Forbidden: the user may not list machines.
        """
        clock = self._opened.env.clock
        while True:
            try:
                async with aclosing(watched_object.watched(self._opened, kind, "", {})) as seen:
                    async for items in seen:
                        self._found[kind.plural] = dict(items)
                        self._changed.set()
            except watched_object.TRANSIENT:
                pass  # watched again
            except Forbidden:
                if kind is MACHINE:
                    raise
                self._found[kind.plural] = None
                self._changed.set()
                return
            await clock.sleep(_RETRY_S)


@click.command("pools", cls=Command, examples=("grange machines pools",))
@options.output(documents.OBJECT)
@options.connected
def pools(env: Environment, target: session.ClusterTarget, output: str) -> None:
    """List node pools: machines by phase, price per hour, and why a pool cannot be served."""

    async def verb(opened: session.ApiSession) -> int:
        found = await opened.listed(NODEPOOL, "")
        if output:
            print_objects(output, NODEPOOL, found)
            return 0
        shown = machine_board.pool_lines(found)
        none = "No node pools; grange apply -f FILE creates one from a manifest."
        terminal.echo("\n".join(shown or [none]), err=not shown)
        return 0

    session.run(env, target, verb)
