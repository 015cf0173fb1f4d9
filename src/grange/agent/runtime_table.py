"""The runtimes that an agent can use: one package in ``runtimes`` and one line of ``RUNTIMES`` each."""

import os
from pathlib import Path

from grange.agent.addresses import default_range
from grange.agent.node_runtime import NodeRuntime
from grange.agent.paired_runtimes import PairedRuntimes
from grange.agent.runtime_options import NO_SOCKET, RuntimeFactory, RuntimeOptions
from grange.agent.runtimes.process.process_runtime import ProcessConfig, ProcessRuntime
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Offload

SOCKETS = (Path("/run/containerd/containerd.sock"), Path("/run/crio/crio.sock"))
"""Where container runtimes listen."""


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
