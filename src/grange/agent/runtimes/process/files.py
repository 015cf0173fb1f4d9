"""What the process runtime keeps on disk, and how it is laid out.

::

    <data>/pods/<uid>/                  0700
        pod.json                        who the pod is and its address
        tmp/                            TMPDIR of its containers
        hosts, resolv.conf              in /etc of its containers, where they are isolated
        volumes/<name>                  a directory, or a link to a path of the machine
        containers/<container>/
            root/                       working directory; mounts appear here as links
            <attempt>/                  state.json, ctl, log, log.1, …

Everything here blocks and is called through an ``Offload``.
"""

import itertools
import json
import os
import stat
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from grange.agent import name_files, pod_directory
from grange.agent.container_runtime import (
    ContainerID,
    Mount,
    NameFiles,
    PodSetup,
    Program,
    RuntimeFailedError,
)
from grange.agent.runtimes.process import beneath, shim

_POD_FILE = "pod.json"
_ASIDE = ".old-"  # roots that could not be deleted, because their files are another user's
_KEPT_ATTEMPTS = 2  # the newest and, for `logs --previous` and lastState, the one before


@dataclass(frozen=True, slots=True)
class PodFile:
    """The content of ``pod.json``."""

    uid: str
    namespace: str
    name: str
    node_name: str
    address: str
    volumes: dict[str, str]


class Layout:
    """Paths below one data directory."""

    def __init__(self, data_dir: Path) -> None:
        self.root = data_dir / "pods"

    def pod(self, uid: str) -> Path:
        """A pod's directory."""
        return self.root / uid

    def container(self, uid: str, container: str) -> Path:
        """A container's directory."""
        return self.root / uid / "containers" / container

    def attempt(self, target: ContainerID) -> Path:
        """An attempt's directory."""
        return self.container(target.pod_uid, target.container) / str(target.attempt)

    def make_pod(self, setup: PodSetup, address: str, *, has_names: bool = True) -> PodFile:
        """Make a pod's directories and volumes; what is there already stays.

        Args:
            setup: of the pod.
            address: of the pod.
            has_names: it has the files of names, which containers with a view see.

        Raises:
            RuntimeFailedError: the disk or a ``hostPath`` does not allow it.
        """
        directory = self.pod(setup.uid)
        try:
            passed = pod_directory.PASSED if setup.shared else pod_directory.PRIVATE
            for place in (directory, directory / "volumes", directory / "containers"):
                pod_directory.make_own(place, passed)
            pod_directory.make_own(
                directory / "tmp", pod_directory.COMMON if setup.shared else pod_directory.PRIVATE
            )
            volumes = {
                plan.name: str(pod_directory.make_volume(directory, plan)) for plan in setup.volumes
            }
            for plan in setup.volumes:
                if setup.shared and not plan.exact and not plan.host_path:
                    Path(volumes[plan.name]).chmod(pod_directory.COMMON)
                if setup.fs_group is not None and not plan.host_path:
                    pod_directory.give_group(Path(volumes[plan.name]), setup.fs_group)
            if has_names:
                name_files.create(directory, setup, address)
            record = PodFile(
                setup.uid, setup.namespace, setup.name, setup.node_name, address, volumes
            )
            pod_directory.write_atomically(
                directory / _POD_FILE, json.dumps(asdict(record)).encode()
            )
        except OSError as error:
            raise RuntimeFailedError(
                f"cannot make the pod's directory {directory}: {error.strerror}"
            ) from error
        return record

    def make_attempt(
        self,
        target: ContainerID,
        program: Program,
        mounts: tuple[Mount, ...],
        volumes: dict[str, str],
        *,
        own_view: bool = False,
    ) -> Path:
        """Make a container's root with its mounts and the attempt's directory.

        Attempts that cannot be queried any more are deleted. A root for another user is that
        user's.

        Args:
            target: the attempt.
            program: what is to run.
            mounts: of the container.
            volumes: volume name to path.
            own_view: volumes are mounted at their paths, and a path of the machine may be hidden: links
                in the root lead to where they are mounted.

        Raises:
            RuntimeFailedError: the disk does not allow it, or the attempt exists.
        """
        container = self.container(target.pod_uid, target.container)
        user = program.user
        try:
            pod_directory.make_own(
                container, pod_directory.PASSED if user else pod_directory.PRIVATE
            )
            # As with images, what an attempt wrote outside of volumes does not outlive it.
            _clear(container / "root")
            (container / "root").mkdir()
            for mount in mounts:
                _make_mount(container / "root", mount, volumes[mount.volume], own_view=own_view)
            _make_message(container / "root", program.message_path)
            if user is not None:
                _give(container / "root", user)
            directory = self.attempt(target)
            if directory.exists() and not (directory / shim.STATE_FILE).exists():
                _clear(directory)  # an earlier try got no further than this
            directory.mkdir(mode=0o700)
        except OSError as error:
            raise RuntimeFailedError(
                f"cannot make {container}: {error.strerror} ({error.filename})"
            ) from error
        for path in _leftovers(container):
            pod_directory.remove_tree(path)
        return directory

    def remove_attempt(self, target: ContainerID) -> None:
        """Forget an attempt that was never started."""
        pod_directory.remove_tree(self.attempt(target))

    def remove_pod(self, uid: str) -> None:
        """Delete a pod's directory; links to the machine's files are cut, never followed."""
        pod_directory.remove_pod(self.pod(uid))

    def read_file(self, uid: str, name: str, limit: int) -> bytes | None:
        """The first bytes of a regular file in a pod's temporary directory; None without one.

        The pod may put anything there: links and FIFOs are not opened.
        """
        return pod_directory.read_regular(self.pod(uid) / "tmp" / name, limit)

    def read_message(self, target: ContainerID, path: str, limit: int) -> bytes | None:
        """The last bytes of a regular file below a container's root; None without one.

        The program may have put anything there: links and FIFOs are not opened.
        """
        root = str(self.container(target.pod_uid, target.container) / "root")
        try:
            flags = os.O_RDONLY | os.O_NONBLOCK
            descriptor = beneath.open_beneath(root, path.strip("/"), flags, links=False)
        except OSError:
            return None
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                return None
            return os.pread(descriptor, limit, max(0, found.st_size - limit))
        finally:
            os.close(descriptor)

    def write_name_files(self, uid: str, files: NameFiles) -> None:
        """Change a pod's ``hosts`` and ``resolv.conf``.

        Raises:
            RuntimeFailedError: the disk does not allow it.
        """
        name_files.write(self.pod(uid), files)

    def pods(self) -> list[str]:
        """UIDs of the pods on disk, sorted."""
        try:
            return sorted(item.name for item in self.root.iterdir() if item.is_dir())
        except FileNotFoundError:
            return []

    def read_pod(self, uid: str) -> PodFile | None:
        """A pod's record; None when there is none or it is damaged.

        Raises:
            OSError: it is there and cannot be read now.
        """
        try:
            return PodFile(**json.loads((self.pod(uid) / _POD_FILE).read_bytes()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def attempts(self, uid: str) -> list[ContainerID]:
        """The attempts of a pod on disk, by container and number."""
        containers = self.pod(uid) / "containers"
        try:
            names = sorted(item.name for item in containers.iterdir())
        except FileNotFoundError:
            return []
        return [
            ContainerID(uid, name, number)
            for name in names
            for number in _numbers(containers / name)
        ]

    def read_state(self, target: ContainerID) -> dict[str, object] | None:
        """An attempt's ``state.json``; None when there is none or it is damaged.

        Raises:
            OSError: it is there and cannot be read now.
        """
        try:
            state = json.loads((self.attempt(target) / shim.STATE_FILE).read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return state if isinstance(state, dict) else None

    def write_state(self, target: ContainerID, state: dict[str, object]) -> None:
        """Record how an attempt ended, durably.

        Raises:
            OSError: the disk does not allow it.
        """
        directory = os.open(self.attempt(target), os.O_RDONLY | os.O_DIRECTORY)
        try:
            shim.write_state(directory, state, durable=True)
        finally:
            os.close(directory)


def _numbers(container: Path) -> list[int]:
    return sorted(int(item.name) for item in container.iterdir() if item.name.isdigit())


def _leftovers(container: Path) -> list[Path]:
    """Attempts that cannot be queried any more, and roots that could not be deleted."""
    old = [container / str(number) for number in _numbers(container)[:-_KEPT_ATTEMPTS]]
    return old + sorted(container.glob(f"*{_ASIDE}*"))


def _give(root: Path, user: tuple[int, int]) -> None:
    """Let a container's root be a user's, with what was made in it."""
    for name, directories, files in os.walk(root):
        os.chown(name, *user)
        for path in (Path(name, item) for item in (*directories, *files)):
            os.chown(path, *user, follow_symlinks=False)


def _clear(top: Path) -> None:
    """Let nothing be at this path; what cannot be deleted is put aside.

    Raises:
        OSError: the disk does not allow even that.
    """
    pod_directory.remove_tree(top)
    if top.exists():  # files of another user
        aside = (top.with_name(f"{top.name}{_ASIDE}{n}") for n in itertools.count())
        top.rename(next(path for path in aside if not path.exists()))


def _make_message(root: Path, path: str) -> None:
    """An empty file for a program's message about its end, unless the path is in a volume."""
    parent, _, name = path.strip("/").rpartition("/")
    if not name:
        return
    with suppress(OSError):  # in a volume, or with parts that cannot be names: there is no message
        beneath.make_beneath(str(root), parent)
        at = beneath.open_beneath(str(root), parent, os.O_PATH | os.O_DIRECTORY, links=False)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(name, flags, 0o666, dir_fd=at))
        finally:
            os.close(at)


def _make_mount(root: Path, mount: Mount, volume: str, *, own_view: bool) -> None:
    """Let a volume, or a part of it, appear in a container's root."""
    place = root / mount.path.strip("/")
    source = Path(volume, mount.sub_path) if mount.sub_path else Path(volume)
    if mount.sub_path:
        beneath.make_beneath(volume, mount.sub_path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(Path("/", mount.path.lstrip("/")) if own_view else source)
