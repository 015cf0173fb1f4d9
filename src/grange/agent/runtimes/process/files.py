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
import shutil
import stat
from collections.abc import Set
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from grange.agent.container_runtime import (
    ContainerID,
    Mount,
    NameFiles,
    PodSetup,
    Program,
    RuntimeFailedError,
    VolumePlan,
)
from grange.agent.runtimes.process import beneath, name_files, shim

_POD_FILE = "pod.json"
_ASIDE = ".old-"  # roots that could not be deleted, because their files are another user's
_PRIVATE = 0o700
_PASSED = 0o711  # others pass through and cannot look around
_COMMON = 0o1777
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

    def make_pod(self, setup: PodSetup, address: str) -> PodFile:
        """Make a pod's directories and volumes; what is there already stays.

        Raises:
            RuntimeFailedError: the disk or a ``hostPath`` does not allow it.
        """
        directory = self.pod(setup.uid)
        try:
            passed = _PASSED if setup.shared else _PRIVATE
            for place in (directory, directory / "volumes", directory / "containers"):
                _own(place, passed)
            _own(directory / "tmp", _COMMON if setup.shared else _PRIVATE)
            volumes = {plan.name: str(_make_volume(directory, plan)) for plan in setup.volumes}
            for plan in setup.volumes:
                if setup.shared and not plan.exact and not plan.host_path:
                    Path(volumes[plan.name]).chmod(_COMMON)
                if setup.fs_group is not None and not plan.host_path:
                    _give_group(Path(volumes[plan.name]), setup.fs_group)
            name_files.create(directory, setup, address)
            record = PodFile(
                setup.uid, setup.namespace, setup.name, setup.node_name, address, volumes
            )
            _write_atomically(directory / _POD_FILE, json.dumps(asdict(record)).encode())
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
    ) -> Path:
        """Make a container's root with its mounts and the attempt's directory.

        Attempts that cannot be queried any more are deleted. A root for another user is that
        user's.

        Raises:
            RuntimeFailedError: the disk does not allow it, or the attempt exists.
        """
        container = self.container(target.pod_uid, target.container)
        user = program.user
        try:
            _own(container, _PASSED if user else _PRIVATE)
            # As with images, what an attempt wrote outside of volumes does not outlive it.
            _clear(container / "root")
            (container / "root").mkdir()
            for mount in mounts:
                _make_mount(container / "root", mount, volumes[mount.volume])
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
            _remove(path)
        return directory

    def remove_attempt(self, target: ContainerID) -> None:
        """Forget an attempt that was never started."""
        _remove(self.attempt(target))

    def remove_pod(self, uid: str) -> None:
        """Delete a pod's directory; links to the machine's files are cut, never followed."""
        _remove(self.pod(uid))

    def read_file(self, uid: str, name: str, limit: int) -> bytes | None:
        """The first bytes of a regular file in a pod's temporary directory; None without one.

        The pod may put anything there: links and FIFOs are not opened.
        """
        path = self.pod(uid) / "tmp" / name
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            return os.read(descriptor, limit) if regular else None
        finally:
            os.close(descriptor)

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
        try:
            name_files.write(self.pod(uid), files)
        except OSError as error:
            raise RuntimeFailedError(
                f"cannot write {error.filename or self.pod(uid)}: {error.strerror or error}"
            ) from error

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


def _own(directory: Path, mode: int) -> None:
    """Make a directory and its parents ours, whatever a program did to their modes."""
    try:
        directory.mkdir(mode=_PRIVATE, exist_ok=True)
    except (FileNotFoundError, PermissionError):
        _own(directory.parent, mode)
        directory.mkdir(mode=_PRIVATE, exist_ok=True)
    directory.chmod(mode)


def _give(root: Path, user: tuple[int, int]) -> None:
    """Let a container's root be a user's, with what was made in it."""
    for name, directories, files in os.walk(root):
        os.chown(name, *user)
        for path in (Path(name, item) for item in (*directories, *files)):
            os.chown(path, *user, follow_symlinks=False)


def _give_group(volume: Path, group: int) -> None:
    """Let a volume be a group's, too, as the kubelet does it: members may write to all of it."""
    for name, _, files in os.walk(volume):
        for path in (Path(name), *(Path(name, item) for item in files)):
            if path.is_symlink():
                continue
            os.chown(path, -1, group)
            path.chmod(stat.S_IMODE(path.stat().st_mode) | (0o2070 if path.is_dir() else 0o060))


def _remove(top: Path) -> None:
    """Delete a tree as far as possible, also where a program has made directories read-only.

    Links are deleted and never followed.
    """
    if top.is_symlink() or not top.is_dir():
        top.unlink(missing_ok=True)
        return
    shutil.rmtree(top, ignore_errors=True)
    if not top.exists():
        return
    with suppress(OSError):
        top.chmod(0o700)
    for name, directories, _ in os.walk(top):
        for path in (Path(name, item) for item in directories):
            if not path.is_symlink():
                with suppress(OSError):
                    path.chmod(0o700)  # before it is listed
    shutil.rmtree(top, ignore_errors=True)


def _clear(top: Path) -> None:
    """Let nothing be at this path; what cannot be deleted is put aside.

    Raises:
        OSError: the disk does not allow even that.
    """
    _remove(top)
    if top.exists():  # files of another user
        aside = (top.with_name(f"{top.name}{_ASIDE}{n}") for n in itertools.count())
        top.rename(next(path for path in aside if not path.exists()))


def _write_atomically(path: Path, content: bytes, mode: int = 0o600) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(fd, "wb") as target:
        target.write(content)
    temporary.chmod(mode)  # whatever the umask took away
    temporary.replace(path)


def _make_volume(directory: Path, plan: VolumePlan) -> Path:
    path = directory / "volumes" / plan.name
    if plan.host_path:
        _check_host_path(plan)
        if not path.is_symlink():
            path.symlink_to(plan.host_path)
        return path
    if path.is_symlink():  # a program put it there; what it leads to is not ours to change
        path.unlink()
    path.mkdir(exist_ok=True)
    if plan.exact:
        _prune(path, {path / file.path for file in plan.files})
    for file in plan.files:
        target = path / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        _write_atomically(target, file.content, file.mode)
    return path


def _prune(top: Path, files: Set[Path]) -> None:
    """Delete what is below a volume and is neither one of the files nor on the way to one."""
    places = {parent for file in files for parent in file.parents}
    for name, directories, others in os.walk(top):
        here = Path(name)
        here.chmod(here.stat().st_mode | 0o700)
        for path in (here / item for item in (*directories, *others)):
            is_place = path.is_dir() and not path.is_symlink()
            if path not in (places if is_place else files):
                _remove(path)
        directories[:] = [item for item in directories if here / item in places]


_HOST_PATH_CHECKS = {"Directory": Path.is_dir, "File": Path.is_file, "Socket": Path.is_socket}


def _check_host_path(plan: VolumePlan) -> None:
    path = Path(plan.host_path)
    if plan.host_path_type == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif plan.host_path_type == "FileOrCreate":
        path.touch()
    check = _HOST_PATH_CHECKS.get(plan.host_path_type)
    if check is not None and not check(path):
        raise RuntimeFailedError(
            f'volume "{plan.name}": hostPath {plan.host_path} is not a '
            f"{plan.host_path_type.lower()} of this machine"
        )


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


def _make_mount(root: Path, mount: Mount, volume: str) -> None:
    """Let a volume, or a part of it, appear in a container's root."""
    place = root / mount.path.strip("/")
    source = Path(volume, mount.sub_path) if mount.sub_path else Path(volume)
    if mount.sub_path:
        beneath.make_beneath(volume, mount.sub_path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(source)
