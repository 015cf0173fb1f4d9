"""The runtimes that an agent can use: one package in ``runtimes`` and one line of ``RUNTIMES`` each."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from grange.agent.addresses import default_range
from grange.agent.node_runtime import NodeRuntime
from grange.agent.paired_runtimes import PairedRuntimes
from grange.agent.runtime_choices import NO_ISOLATION, SHARED
from grange.agent.runtimes.process.process_runtime import ProcessConfig, ProcessRuntime
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Offload

__all__ = [
    "NO_SOCKET",
    "RUNTIMES",
    "SOCKETS",
    "RuntimeFactory",
    "RuntimeOptions",
]

NO_SOCKET = "none"
SOCKETS = (Path("/run/containerd/containerd.sock"), Path("/run/crio/crio.sock"))
"""Where container runtimes listen."""


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """What a program asks of the runtime that it opens.

    Attributes:
        data_dir: the runtime keeps its data below it.
        isolation: one of ``ISOLATION``.
        network: one of ``NETWORKS``.
        shown: directories that isolated pods see where they are, also below ``/tmp``.
        hidden: files of the user that isolated pods may not see.
        cri_socket: of the machine's container runtime; ``NO_SOCKET`` for none; empty: the first of
            ``SOCKETS`` that there is.
    """

    data_dir: Path
    isolation: str = NO_ISOLATION
    network: str = SHARED
    shown: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    cri_socket: str = ""


class RuntimeFactory(Protocol):
    """Makes a runtime; opening it is up to the caller."""

    def __call__(
        self, options: RuntimeOptions, *, clock: Clock, log: Logger, offload: Offload
    ) -> NodeRuntime:
        """A runtime that does what the options ask for, or refuses to be opened."""


def _process(
    options: RuntimeOptions, *, clock: Clock, log: Logger, offload: Offload
) -> NodeRuntime:
    config = ProcessConfig(
        data_dir=options.data_dir,
        isolation=options.isolation,
        programs_network=options.network,
        shown=options.shown,
        hidden=options.hidden,
    )
    processes = ProcessRuntime(config, clock=clock, log=log, offload=offload)
    socket = _socket(options.cri_socket)
    if socket is None:
        return processes
    containers = _cri(socket, options, processes, clock=clock, log=log, offload=offload)
    return PairedRuntimes(processes, containers, log=log, needed=bool(options.cri_socket))


def _cri(
    socket: Path,
    options: RuntimeOptions,
    processes: ProcessRuntime,
    *,
    clock: Clock,
    log: Logger,
    offload: Offload,
) -> NodeRuntime:
    from grange.agent.runtimes.cri.cri_config import CriConfig
    from grange.agent.runtimes.cri.cri_runtime import CriRuntime

    # Not the range of processes: each runtime gives its addresses alone.
    network = default_range(f"{options.data_dir}/cri")
    config = CriConfig(options.data_dir, socket, network=network)
    # Others than root cannot look into containers.
    launcher = processes if os.geteuid() == 0 else None
    return CriRuntime(config, clock=clock, log=log, offload=offload, launcher=launcher)


def _socket(asked: str) -> Path | None:
    if asked == NO_SOCKET:
        return None
    if asked:
        return Path(asked)
    return next((path for path in SOCKETS if os.access(path, os.R_OK | os.W_OK)), None)


RUNTIMES: dict[str, RuntimeFactory] = {"process": _process}
"""By the name of ``--runtime``; it is also the scheme of ``containerID``."""
