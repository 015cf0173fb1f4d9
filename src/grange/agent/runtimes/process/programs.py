"""Which file a command means, and what a shim receives about it."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grange.agent.container_runtime import Confinement, Program
from grange.agent.runtimes.process.child_processes import MARK


def locate(program: Program, cwd: Path, *, own_view: bool = False) -> Path | str:
    """The file to execute, or a message that names the program and where it was looked for.

    Args:
        program: what to look for.
        cwd: where it starts.
        own_view: it sees other files than we do: what to look for is looked up when it starts.
    """
    word = program.command[0]
    shown = program.written or word
    if "/" in word:
        path = cwd / word
        if own_view or os.path.exists(path):  # also answers where the name is too long for a file
            return path
        where = "there is no such file" if program.written else f"there is no file {path}"
        return f'program "{shown}" not found: {where}'
    if own_view:
        return Path(word)
    search = program.env.get("PATH", "")
    start = str(cwd)
    for directory in search.split(":"):
        file = os.path.join(start, directory, word)
        if os.path.isfile(file) and os.access(file, os.X_OK):
            return Path(file)
    return f'program "{shown}" not found in PATH={program.search or search}'


def specification(
    program: Program, path: Path, cwd: Path, mark: Path, network: str
) -> dict[str, object]:
    """What the shim needs to execute a program.

    Args:
        program: arguments and environment.
        path: the file; a name alone is looked up in PATH when the program starts.
        cwd: where it starts.
        mark: directory of the attempt; by it the run's processes are known.
        network: file of the pod's network namespace; empty where it has none.
    """
    return {
        "path": str(path),
        "shown": program.written or str(path),
        "search": program.search or program.env.get("PATH", ""),
        "command": list(program.command),
        "env": {**program.env, MARK: str(mark)},
        "cwd": str(cwd),
        "user": program.user,
        "pod": str(mark.parents[2]),
        "netns": network,
        "limits": program.limits,
        "rights": rights_of(program.confinement),
        "stdin": program.stdin,
        "stdin_once": program.stdin_once,
        "tty": program.tty,
    }


def rights_of(confinement: Confinement) -> dict[str, object]:
    """What the shim needs to confine a program; empty for no confinement."""
    found = asdict(confinement)
    nothing = asdict(Confinement())
    return {name: value for name, value in found.items() if value != nothing[name]}


def confinement_from(rights: Mapping[str, Any]) -> Confinement:
    """The confinement that a shim was given."""
    return Confinement(**{**rights, "groups": tuple(rights.get("groups", ()))})
