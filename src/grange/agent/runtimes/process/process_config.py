"""Settings of the process runtime."""

from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from grange.agent.runtime_choices import NO_ISOLATION, SHARED


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """Settings of the process runtime.

    Attributes:
        data_dir: where pods are kept; the runtime makes ``pods`` and ``runtime.lock`` in it.
        network: range of the pods' addresses, inside 127.0.0.0/8; None derives one from the data
            directory, so that several servers on a machine rarely meet.
        log_max_bytes: a container's log file is rotated at this size.
        log_files: how many files a container's log has at most.
        lock_limit_s: how long to wait for an earlier server's launcher to end.
        answer_limit_s: how long opening waits for the shims that it finds, all together.
        kill_limit_s: how long SIGKILL may take before a shim that does not react is killed as well;
            longer than a shim waits for a process that is stuck in the kernel.
        command_output_bytes: how much of a command's output (exec probes) is kept.
        isolation: one of ``ISOLATION``; ``auto`` is ``namespaces`` where the kernel allows it.
        programs_network: one of ``NETWORKS``: what programs get that listen on all addresses.
        shown: directories that isolated programs see where they are, also below ``/tmp``, of which
            they have their own.
        hidden: files and directories that isolated programs see nothing of, beyond ``data_dir``.
    """

    data_dir: Path
    network: IPv4Network | None = None
    log_max_bytes: int = 10 * 1024 * 1024
    log_files: int = 5
    lock_limit_s: float = 10.0
    answer_limit_s: float = 5.0
    kill_limit_s: float = 15.0
    command_output_bytes: int = 10 * 1024
    isolation: str = NO_ISOLATION
    programs_network: str = SHARED
    shown: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
