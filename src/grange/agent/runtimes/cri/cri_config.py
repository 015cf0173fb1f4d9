"""Settings of the CRI runtime."""

from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CriConfig:
    """Settings of the CRI runtime.

    Attributes:
        data_dir: where the files of pods are kept; the runtime makes ``cri`` in it.
        socket: of the container runtime.
        network: range of the addresses of pods, inside 127.0.0.0/8: they share the machine's
            network; None derives one from the data directory.
        look_s: how often the containers are listed while any of them runs.
        log_max_bytes: a container's log file is rotated at this size.
        log_files: how many files a container's log has at most.
        kill_limit_s: how long SIGKILL may take.
        command_output_bytes: how much of a command's output (exec probes) is kept.
    """

    data_dir: Path
    socket: Path
    network: IPv4Network | None = None
    look_s: float = 0.25
    log_max_bytes: int = 10 * 1024 * 1024
    log_files: int = 5
    kill_limit_s: float = 15.0
    command_output_bytes: int = 10 * 1024
