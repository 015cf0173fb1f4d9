"""What the runtime keeps on disk for a pod. Everything here blocks.

::

    <data>/cri/pods/<uid>/              0711
        tmp/                            in every container at this same path
        hosts, resolv.conf              in /etc of its containers
        volumes/<name>                  a directory, or a link to a path of the machine
        logs/<container>/<attempt>/     log, log.1, …, message-…
        ports/                          a file for each port that got the pod's address
        seccomp.json                    profile of the container that is being created
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from grange.agent import name_files, pod_directory
from grange.agent.attempt_logs import LOG_FILE
from grange.agent.container_runtime import (
    ContainerID,
    Mount,
    NameFiles,
    PodSetup,
    RuntimeFailedError,
    Sandbox,
)


class CriFiles:
    """Paths below one data directory."""

    def __init__(self, data_dir: Path) -> None:
        self.root = data_dir / "cri" / "pods"

    def pod(self, uid: str) -> Path:
        """A pod's directory."""
        return self.root / uid

    def logs(self, uid: str) -> Path:
        """Where a pod's logs are."""
        return self.root / uid / "logs"

    def attempt_logs(self, target: ContainerID) -> Path:
        """Where an attempt's log files are."""
        return self.logs(target.pod_uid) / target.container / str(target.attempt)

    def ports(self, uid: str) -> Path:
        """Where files show which ports of a pod's address are bound."""
        return self.root / uid / "ports"

    def write_profile(self, uid: str, profile: dict[str, Any]) -> str:
        """Write a seccomp profile for the container runtime, and return its path.

        Raises:
            RuntimeFailedError: the disk does not allow it.
        """
        path = self.pod(uid) / "seccomp.json"
        try:
            path.write_text(json.dumps(profile), encoding="ascii")
        except OSError as error:
            raise RuntimeFailedError(f"cannot write {path}: {error.strerror}") from error
        return str(path.resolve())

    def make_pod(self, setup: PodSetup, address: str) -> Sandbox:
        """Make a pod's directories and volumes; what is there already stays.

        Raises:
            RuntimeFailedError: the disk or a ``hostPath`` does not allow it.
        """
        directory = self.pod(setup.uid)
        try:
            for place in (directory, directory / "volumes"):
                pod_directory.make_own(place, pod_directory.PASSED)
            pod_directory.make_own(directory / "logs", pod_directory.PRIVATE)
            pod_directory.make_own(directory / "tmp", pod_directory.COMMON)
            volumes = {}
            for plan in setup.volumes:
                path = pod_directory.make_volume(directory, plan)
                volumes[plan.name] = str(path)
                if not plan.exact and not plan.host_path:
                    path.chmod(pod_directory.COMMON)  # a container's user is the image's business
                if setup.fs_group is not None and not plan.host_path:
                    pod_directory.give_group(path, setup.fs_group)
            name_files.create(directory, setup, address or "127.0.1.1")
        except OSError as error:
            raise RuntimeFailedError(
                f"cannot make the pod's directory {directory}: {error.strerror}"
            ) from error
        return Sandbox(setup.uid, address, str(directory), volumes)

    def found(self, uid: str, address: str) -> Sandbox:
        """The sandbox of a pod whose directory an earlier runtime made."""
        directory = self.pod(uid)
        volumes: dict[str, str] = {}
        with suppress(OSError):
            volumes = {item.name: str(item) for item in sorted((directory / "volumes").iterdir())}
        return Sandbox(uid, address, str(directory), volumes)

    def make_logs(self, target: ContainerID) -> None:
        """Make the directory of an attempt's log.

        Raises:
            RuntimeFailedError: the disk does not allow it.
        """
        try:
            self.attempt_logs(target).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RuntimeFailedError(f"{target}: cannot keep logs: {error.strerror}") from error

    def remove_logs(self, target: ContainerID) -> None:
        """Delete an attempt's log."""
        shutil.rmtree(self.attempt_logs(target), ignore_errors=True)

    def mounts(
        self, target: ContainerID, sandbox: Sandbox, mounts: Iterable[Mount], message_path: str
    ) -> list[tuple[Mount, str]]:
        """The container's mounts with the paths of what is mounted, links resolved.

        Raises:
            RuntimeFailedError: a sub path leads out of its volume, or cannot be made.
        """
        found = []
        for mount in mounts:
            volume = Path(os.path.realpath(sandbox.volumes[mount.volume]))
            source = Path(os.path.realpath(volume / mount.sub_path))
            if not source.is_relative_to(volume):
                raise RuntimeFailedError(
                    f'volume "{mount.volume}": subPath {mount.sub_path} leads out of the volume'
                )
            try:
                if not source.exists():
                    source.mkdir(parents=True)
            except OSError as error:
                raise RuntimeFailedError(
                    f'volume "{mount.volume}": cannot make {source}: {error.strerror}'
                ) from error
            found.append((mount, str(source)))
        directory = Path(sandbox.directory)
        taken = {"/" + mount.path.strip("/") for mount, _ in found}
        own = {str(directory / "tmp"): str(directory / "tmp")}
        own |= {path: str(directory / name) for name, path in name_files.MOUNTED.items()}
        if message_path:
            message = self._message(target, message_path)
            try:
                message.touch()
                message.chmod(0o666)  # a container's user is the image's business
            except OSError as error:
                raise RuntimeFailedError(f"{target}: {message}: {error.strerror}") from error
            own["/" + message_path.strip("/")] = str(message)
        own = {path: source for path, source in own.items() if path not in taken}
        return [*found, *((Mount("", path), source) for path, source in own.items())]

    def _message(self, target: ContainerID, path: str) -> Path:
        name = hashlib.sha256(path.strip("/").encode()).hexdigest()[:16]
        return self.attempt_logs(target) / f"message-{name}"

    def read_message(self, target: ContainerID, path: str, limit: int) -> bytes | None:
        """The last bytes of what a container left at a path; None without such a file."""
        try:
            with self._message(target, path).open("rb") as source:
                source.seek(max(0, source.seek(0, os.SEEK_END) - limit))
                return source.read(limit)
        except OSError:
            return None

    def write_name_files(self, uid: str, files: NameFiles) -> None:
        """Change a pod's ``hosts`` and ``resolv.conf`` in place.

        Raises:
            RuntimeFailedError: the disk does not allow it.
        """
        name_files.write(self.pod(uid), files)

    def rotate(self, target: ContainerID, limit: int, keep: int) -> bool:
        """Put the log aside if it is too long; True if the runtime has to open it again."""
        directory = self.attempt_logs(target)
        newest = directory / LOG_FILE
        try:
            if newest.stat().st_size <= limit:
                return False
            for number in range(keep - 1, 0, -1):
                older = directory / f"{LOG_FILE}.{number - 1}" if number > 1 else newest
                if older.exists():
                    older.replace(directory / f"{LOG_FILE}.{number}")
        except OSError:
            return False  # it is looked at again
        return True

    def read_file(self, uid: str, name: str, limit: int) -> bytes | None:
        """The first bytes of a regular file in a pod's temporary directory; None without one."""
        return pod_directory.read_regular(self.pod(uid) / "tmp" / name, limit)

    def remove_pod(self, uid: str) -> None:
        """Delete a pod's directory; links to the machine's files are cut, never followed."""
        pod_directory.remove_pod(self.pod(uid))

    def pods(self) -> list[str]:
        """UIDs of the pods on disk, sorted."""
        try:
            return sorted(item.name for item in self.root.iterdir())
        except OSError:
            return []
