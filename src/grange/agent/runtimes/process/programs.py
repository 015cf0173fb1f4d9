"""Which file a command means, and what a shim is told about it."""

import os
from pathlib import Path

from grange.agent.runtime import Program
from grange.agent.runtimes.process.leftovers import MARK


def locate(program: Program, cwd: Path) -> Path | str:
    """The file to execute, or a message that names the program and where it was looked for."""
    word = program.command[0]
    if "/" in word:
        path = cwd / word
        if path.exists():
            return path
        return f'program "{word}" not found: there is no file {path}'
    search = program.env.get("PATH", "")
    for directory in search.split(":"):
        path = cwd / directory / word
        if path.is_file() and os.access(path, os.X_OK):
            return path
    return f'program "{word}" not found in PATH={search}'


def specification(program: Program, path: Path, cwd: Path, mark: Path) -> dict[str, object]:
    """What the shim needs to execute a program.

    Args:
        program: arguments and environment.
        path: the file.
        cwd: where it starts.
        mark: directory of the attempt; by it the run's processes are known.
    """
    return {
        "path": str(path),
        "command": list(program.command),
        "env": {**program.env, MARK: str(mark)},
        "cwd": str(cwd),
    }
