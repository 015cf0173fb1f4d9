"""``grange up``: serve a control plane until it is stopped."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from grange.alerts.targets import InvalidTarget
from grange.app import alerting, flags, gc_tuning, node_pools, pki, process, system_authorities
from grange.app.daemon import NEXT, refuse_if_served, served_text, start_detached
from grange.app.datadir import (
    make_directory,
    remember_nodes,
    remembered_nodes,
    remembered_pools,
)
from grange.app.locations import default_data_dir
from grange.app.node_pools import PoolSize
from grange.app.settings import Settings, SettingsError
from grange.base import log
from grange.base.clock import Clock, LoopClock
from grange.base.plurals import counted
from grange.base.rng import Stream
from grange.cli import options
from grange.cli.command import Command
from grange.cli.environment import Environment


@click.command(
    cls=Command,
    examples=(
        "grange up",
        "grange up --nodes 3 --detach",
        "grange up --nodes 4 --pool drivers=1 --pool workers=3",
    ),
)
@flags.options(Settings)
@click.option("--detach", is_flag=True, help="Return when it is ready; `grange down` stops it.")
@options.output(("json",))
@click.pass_obj
def command(env: Environment, /, *, detach: bool, output: str, **given: Any) -> None:
    """Serve a Kubernetes-compatible API and run its pods on this machine."""
    try:
        found = flags.given(Settings, given)
        directory = found.setdefault("data_dir", default_data_dir(os.environ).absolute())
        found["pools"] = chosen_pools(directory, found.get("pools", ()), found.get("nodes"))
        found["nodes"] = chosen_nodes(
            directory,
            found.get("nodes"),
            remove=found.get("remove_nodes", False),
            needed=node_pools.total(found["pools"]),
        )
        settings = Settings(
            **found, environment=_program_environment(), hidden_files=tuple(env.kubeconfig)
        )
        alerting.checked(settings.alert_webhook)
        _check_agent_package(settings)
    except (SettingsError, InvalidTarget) as error:
        raise click.UsageError(str(error)) from error
    if detach:
        raise SystemExit(env.run(start_detached(settings, env.clock, output)))
    log.configure(level=settings.log_level, json_lines=settings.log_json)
    import uvloop

    merge_into = () if settings.no_context else env.kubeconfig
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve(settings, output, merge_into=merge_into))


def _check_agent_package(settings: Settings) -> None:
    if not (settings.agent_version or settings.agent_url):
        return
    from grange.app.agent_packages import agent_package  # few give one

    agent_package(settings.agent_version, settings.agent_url)


def chosen_pools(
    directory: Path, wanted: tuple[PoolSize, ...], nodes: int | None
) -> tuple[PoolSize, ...]:
    """The pools of the nodes: what is asked for, else those of the last time.

    Raises:
        SettingsError: the nodes that are asked for are too few for the pools of the last time.
    """
    if wanted:
        return wanted
    before = node_pools.sizes(remembered_pools(directory))
    if nodes is not None and node_pools.total(before) > nodes:
        raise SettingsError(
            f"--nodes {nodes}: {directory} has the pools {node_pools.listed(before)}; "
            "give their new sizes with --pool NAME=COUNT, 0 to remove one"
        )
    return before


def chosen_nodes(directory: Path, wanted: int | None, *, remove: bool, needed: int = 0) -> int:
    """How many nodes to present: what is asked for, else as many as the last time, else one.

    Args:
        directory: the data directory.
        wanted: what is asked for.
        remove: it may be fewer than the last time.
        needed: how many the pools take; raises a number that is not asked for.

    Raises:
        SettingsError: it is fewer than the last time, and removal is not allowed.
    """
    before = remembered_nodes(directory)
    if wanted is None:
        return max(before or 1, needed)
    if before and wanted < before and not remove:
        raise SettingsError(
            f"--nodes {wanted}: {directory} has {counted(before, 'node')}; the others and their pods would be "
            "deleted: add --remove-nodes if that is meant, or leave --nodes out to keep all"
        )
    return wanted


def _program_environment() -> dict[str, str]:
    """What pods inherit of ours: where programs are found and which language they speak."""
    kept = ("PATH", "LANG", "LC_ALL", "TZ")
    return {name: os.environ[name] for name in kept if name in os.environ}


async def serve(settings: Settings, output: str = "", *, merge_into: Sequence[Path]) -> None:
    """Run a control plane until SIGINT or SIGTERM, and print where it serves.

    Args:
        settings: what to serve.
        output: the value of ``-o``.
        merge_into: the user's kubeconfigs; a context is added to the first, and none where there is none.
    """
    make_directory(settings.data_dir)
    refuse_if_served(settings.data_dir)
    keys = pki.KeyProcess.start(*pki.wanted(settings))
    with system_authorities.skipped():
        from grange.app.controlplane import ControlPlane

    clock = LoopClock()
    started = process_started(clock)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        if not stop.is_set():
            click.echo("stopping: pods end first", err=True)
        stop.set()

    loop.add_signal_handler(signal.SIGTERM, end)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # else Ctrl-C is meant for others
        loop.add_signal_handler(signal.SIGINT, end)
    plane = ControlPlane(
        settings,
        clock=clock,
        rng=Stream.from_system(),
        log=log.Logger("up"),
        settled=gc_tuning.settle,
        make_keys=keys.keys,
        renew_keys=pki.in_child,
    )

    def ready() -> None:
        lines = [
            f"ready in {clock.monotonic() - started:.2f} s at {plane.url}",
            f"kubeconfig: {plane.kubeconfig}",
        ]
        reach = f"--kubeconfig {plane.kubeconfig}"
        context = ""
        if merge_into:
            merged = plane.merge_into(merge_into)
            context = merged.context
            reach = "" if merged.current else f"--context {merged.context}"
            lines.append(merged_line(merged.context, merge_into[0], current=merged.current))
        if outside := settings.address_outside(urlsplit(plane.url).port or 443):
            create = " ".join(filter(None, ("grange token create --server", outside, reach)))
            lines.append(f"more machines: run what `{create}` prints on them")
        lines.append(
            next_steps(
                reach,
                settings.data_dir,
                default=settings.data_dir == default_data_dir(os.environ),
                terminal=sys.stdin.isatty(),
            )
        )
        remember_nodes(settings.data_dir, settings.nodes)
        served = process.record(settings.data_dir, plane.url, context)
        click.echo(served_text(settings.data_dir, served) if output else "\n".join(lines))
        sys.stdout.flush()

    try:
        await plane.run(ready, stop)
    finally:
        keys.end()
    click.echo("stopped; the next up continues with the same objects", err=True)
    if settings.runs("machines"):
        from grange.app import remaining_machines  # its part of the library is not needed before

        _, about = await remaining_machines.reported(settings.data_dir, log.Logger("up"))
        if about:
            click.echo("\n".join(about), err=True)
    process.forget(settings.data_dir)


def merged_line(context: str, path: Path, *, current: bool) -> str:
    """The line about the context that was added."""
    if current:
        return f"context {context!r} is now current in {path}"
    return (
        f"context {context!r} is in {path}, where another one stays current; "
        f"kubectl config use-context {context} switches"
    )


def next_steps(reach: str, data_dir: Path, *, default: bool, terminal: bool) -> str:
    """The line with the next commands.

    Args:
        reach: the option to give to every verb; empty if the current context will do.
        data_dir: the data directory.
        default: it is the default one.
        terminal: Ctrl-C reaches this process.
    """
    apply = "grange apply -f FILE --wait" + (f" {reach}" if reach else "")
    # Without --data-dir, down follows the current context before the default directory.
    down = "grange down" + ("" if default and not reach else f" --data-dir {data_dir}")
    return f"{NEXT} {apply} · stop with {'Ctrl-C or ' if terminal else ''}{down}"


def process_started(clock: Clock) -> float:
    """When this process started, on the monotonic clock; the present where that is not known."""
    ticks = process.start_ticks(os.getpid())
    if ticks is None:
        return clock.monotonic()
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return clock.monotonic() - age_s
