"""What an isolated container sees of the machine: the request to ``isolation``, and whether it can be made."""

import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from grange.agent.container_runtime import Mount, PodSetup, Program, RuntimeFailedError
from grange.agent.name_files import MOUNTED
from grange.agent.runtime_choices import AUTO, LANDLOCK, NAMESPACES, NO_ISOLATION, TIERS
from grange.agent.runtimes.process import shim_connection

_PROGRAMS = ("/bin/true", "/usr/bin/true")
_TMP = "/tmp"  # noqa: S108  which containers have to themselves
_LIMIT_S = 10.0
_REMEDIES = {
    NAMESPACES: "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
    "kernel.apparmor_restrict_unprivileged_userns=0)",
    LANDLOCK: "it needs Linux 6.2 with landlock in the kernel parameter lsm",
}


@dataclass(frozen=True, slots=True)
class Sight:
    """What containers see of the machine.

    Paths are absolute and without links: they are resolved once, not at each start of a container.

    Attributes:
        hidden: files and directories that they see nothing of.
        shown: directories below ``/tmp`` that they see where they are.
    """

    hidden: tuple[str, ...]
    shown: tuple[str, ...]


def sight(hidden: Iterable[Path], shown: Iterable[Path]) -> Sight:
    """What containers see where some paths are hidden and some directories shown."""
    found = {os.path.realpath(path) for path in shown}
    below_tmp = sorted(path for path in found if path.startswith(_TMP + "/"))
    return Sight(tuple(os.path.realpath(path) for path in hidden), tuple(below_tmp))


def of_container(
    pod: Path,
    root: str,
    setup: PodSetup,
    program: Program,
    mounts: Iterable[Mount],
    volumes: Mapping[str, str],
    sight: Sight,
) -> dict[str, object]:
    """The view of one container, for ``isolation.enter``.

    Args:
        pod: the pod's directory, which stays at its path.
        root: the container's.
        setup: of the pod.
        program: what the view is for.
        mounts: of the container.
        volumes: volume name to path.
        sight: what it sees of the machine.
    """
    found = [
        (volumes[item.volume], item.sub_path, _absolute(item.path), item.read_only)
        for item in mounts
    ]
    paths = {path for _, _, path, _ in found}
    found += [(str(pod), name, path, False) for name, path in MOUNTED.items() if path not in paths]
    message = _absolute(program.message_path) if program.message_path else ""
    if message and not any(Path(message).is_relative_to(path) for path in paths):
        found.append((str(root), message.lstrip("/"), message, False))
    read_only = program.confinement.read_only_root
    if read_only:  # what is writable is so at the paths that variables name, too
        inside = os.path.realpath(pod)
        owned = [volumes[item.volume] for item in mounts if not item.read_only]
        owned = [
            str(Path(inside, *Path(path).parts[-2:])) for path in owned if not os.path.islink(path)
        ]
        found += [(path, "", path, False) for path in {os.path.join(inside, "tmp"), *owned}]
    return {
        "hostname": setup.hostname or setup.name,
        "pod": os.path.realpath(pod),
        "tmp": str(pod / "tmp"),
        "shown": sight.shown,
        "hidden": sight.hidden,
        "mounts": sorted(found, key=lambda item: item[2]),
        "read_only": read_only,
    }


def _absolute(path: str) -> str:
    return os.path.normpath("/" + path.lstrip("/"))


def restriction(pod: Path, hidden: Iterable[str], *, alone: bool) -> dict[str, object]:
    """What a container does not reach where it has no own view, for ``landlock.restrict``.

    Args:
        pod: the pod's directory, which it reaches.
        hidden: what it does not: absolute paths without links.
        alone: it does not signal processes of others either.
    """
    return {
        "hidden": [*hidden],
        "shown": [os.path.realpath(pod)],
        "alone": alone,
    }


def choose(
    isolation: str, run: Callable[[dict[str, object]], socket.socket], data_dir: Path
) -> str:
    """What isolates containers, tried with a program that ends at once: one of ``TIERS``.

    Args:
        isolation: one of ``ISOLATION``.
        run: asks the launcher to run a program; the answer is the connection to its shim.
        data_dir: for a temporary directory.

    Raises:
        RuntimeFailedError: it is asked for and not possible.
    """
    for tier in TIERS if isolation == AUTO else (isolation,):
        why = _refusal(run, data_dir, tier) if tier != NO_ISOLATION else ""
        if not why:
            return tier
        if isolation != AUTO:
            raise RuntimeFailedError(
                f"--isolation {tier}: the kernel does not allow it: {why}; {_REMEDIES[tier]}, or "
                "use --isolation none"
            )
    return NO_ISOLATION


def _refusal(run: Callable[[dict[str, object]], socket.socket], data_dir: Path, tier: str) -> str:
    # An interpreter may be where programs with a view do not see it, as in /tmp.
    program = next((path for path in _PROGRAMS if os.path.exists(path)), sys.executable)
    with tempfile.TemporaryDirectory(dir=data_dir, prefix="probe-") as name:
        spec: dict[str, object] = {
            "path": program,
            "command": [program],
            "env": {},
            "cwd": "/",
            "pod": name,
            "timeout_s": _LIMIT_S,
            "output_limit": 0,
        }
        if tier == LANDLOCK:
            spec["restrict"] = restriction(Path(name), [os.path.realpath(data_dir)], alone=True)
        else:
            spec["view"] = {
                "hostname": "probe",
                "pod": name,
                "tmp": name,
                "shown": [],
                "hidden": [],
                "mounts": [],
            }
        with run(spec) as connection:
            answer = shim_connection.answer(connection, _LIMIT_S)
    if isinstance(answer, str):
        return answer
    if "errno" in answer:
        return os.strerror(shim_connection.number_of(answer, "errno"))
    return "" if answer.get("exit_code") == 0 else "a program in it does not end well"
