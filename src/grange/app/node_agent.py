"""``grange agent``: this machine as a node of a control plane elsewhere."""

import asyncio
import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from grange.agent import file_disk
from grange.app import flags, system_authorities
from grange.app.agent_settings import AgentSettings, pairs
from grange.app.certificate_process import CertificateProcess
from grange.app.datadir import DataDirectoryUnusable, make_directory, node_certificate
from grange.app.settings import SettingsError
from grange.base import log
from grange.base.clock import LoopClock
from grange.base.offload import Threads
from grange.cli.command import Command


@click.command(
    cls=Command,
    examples=(
        "grange agent --server https://10.0.0.1:6443 --token ID.SECRET --ca-hash sha256:HEX",
    ),
)
@flags.options(AgentSettings)
def command(**given: Any) -> None:
    """Join this machine to a control plane, and run the pods that it is given."""
    try:
        found = flags.given(AgentSettings, given)
        found.setdefault("server", "")
        found.setdefault("data_dir", _default_data_dir())
        settings = AgentSettings(**found)
        settings.amounts()
        pairs("--label", settings.labels)
        settings.node_taints()
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    log.configure(level=settings.log_level, json_lines=False)
    import uvloop

    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve(settings))


def _default_data_dir() -> Path:
    home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return home / "grange-agent"


async def serve(settings: AgentSettings) -> None:
    """Run the agent until SIGINT or SIGTERM.

    Raises:
        JoinFailed: the machine cannot join.
        DataDirectoryUnusable: another agent uses the directory.
        SettingsError: the agent's server cannot listen.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    clock, logger = LoopClock(), log.Logger("agent").bind(node=settings.name)
    make_directory(settings.data_dir)
    with _locked(settings.data_dir):
        offload = Threads("agent-disk", file_disk.LANES)
        try:
            with contextlib.closing(CertificateProcess(offload)) as process:
                if _joins(settings):
                    process.start()  # it loads while this process does
                with system_authorities.skipped():
                    from grange.app import joined_node
                if settings.end_pods:
                    await joined_node.end_pods(settings, clock, logger, offload)
                else:
                    await joined_node.serve_node(settings, process, stop, clock, logger, offload)
        finally:
            offload.close()


def _joins(settings: AgentSettings) -> bool:
    has_certificate = node_certificate(settings.data_dir).exists()
    return bool(settings.token) and not has_certificate and not settings.end_pods


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Keep other agents from a data directory; the lock ends with the process."""
    with (directory / "agent.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataDirectoryUnusable(
                f"another agent uses {directory}: stop it, or choose another --data-dir"
            ) from error
        yield
