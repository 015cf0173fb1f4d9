"""Processes that a runtime started for containers, by the mark in their environment."""

import os
from pathlib import Path

from grange.agent.runtimes.process import child_processes
from grange.agent.runtimes.process.environments import environment_of


def marked(data_dir: Path, container: str = "") -> list[int]:
    """Processes that were started for containers below this directory; zombies do not count."""
    wanted = f"{child_processes.MARK}={data_dir}/pods/".encode()
    part = f"/containers/{container}/".encode() if container else b""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            environment = environment_of(int(name))
            if any(item.startswith(wanted) and part in item + b"/" for item in environment):
                found.append(int(name))
    return found
