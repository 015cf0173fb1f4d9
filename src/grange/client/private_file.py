"""Small private files that several programs write: replaced whole, under a lock.

The lock is kubectl's: a file of the same name with ``.lock`` appended, made exclusively. Ours also
carries a word and a kernel lock, so that other Granges wait for it instead of failing, and one left
behind by a killed Grange is recognised and taken over.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from grange.client.errors import KubeconfigError

_MARK = b"held by grange\n"


def replace(path: Path, content: bytes) -> None:
    """Write the file so that a reader sees all of the old or all of the new, mode 0600.

    A symbolic link is followed, so that the link stays. A missing directory is made (0700).

    Raises:
        KubeconfigError: the disk or the permissions do not allow it, or a link on the way was made
            by another user; the old content stays.
    """
    refuse_foreign_links(path)
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)  # mode 0600
        try:
            with os.fdopen(number, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(target)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise KubeconfigError(f"{path}: cannot write it: {error.strerror or error}") from error


def refuse_foreign_links(path: Path) -> None:
    """See to it that no symbolic link of another user (but root) decides where a file is.

    Raises:
        KubeconfigError: one does.
    """
    trusted = {0, os.geteuid()}
    absolute = path.absolute()
    for part in (absolute, *absolute.parents):
        with suppress(OSError):
            if part.is_symlink() and part.lstat().st_uid not in trusted:
                raise KubeconfigError(
                    f"{path}: {part} is a symbolic link of another user, which is not followed; "
                    "name another file in KUBECONFIG"
                )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file's lock; waits for another Grange, which holds it for milliseconds.

    Raises:
        KubeconfigError: another program (kubectl) holds it, or the directory cannot be written.
    """
    lock = path.with_name(path.name + ".lock")
    refuse_foreign_links(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = _acquire(lock)
    except OSError as error:
        raise KubeconfigError(f"{lock}: cannot lock: {error.strerror or error}") from error
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            lock.unlink()
        os.close(number)


def _acquire(lock: Path) -> int:
    """The descriptor that holds the lock file, which is ours and in its place."""
    while True:
        number, name = tempfile.mkstemp(prefix=f".{lock.name}.", dir=lock.parent)
        try:
            # Marked and locked before it gets its name: it is never seen half written.
            os.write(number, _MARK)
            fcntl.flock(number, fcntl.LOCK_EX)
            os.link(name, lock)
            return number
        except FileExistsError:
            os.close(number)
        except BaseException:
            os.close(number)
            raise
        finally:
            Path(name).unlink()
        waited = _wait(lock)
        if waited is not None:
            return waited


def _wait(lock: Path) -> int | None:
    """Wait until the lock's holder is through; its descriptor if it died and left it to us."""
    try:
        number = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        return None
    if os.read(number, len(_MARK)) != _MARK:
        os.close(number)
        raise KubeconfigError(
            f"{lock} exists: another program is writing the file; "
            "try again, or remove it if none is"
        )
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(number), lock.stat()):
                return number
    except BaseException:
        os.close(number)
        raise
    os.close(number)
    return None
