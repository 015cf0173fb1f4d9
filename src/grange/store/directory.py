"""The data directory: private to its owner, and open in one process at a time.

The lock is the kernel's (``flock``), so it ends with the process however that ends. The lock file
stays behind on purpose: removing it would let two processes lock two different files of one name.
"""

import errno
import fcntl
import os
from pathlib import Path

from grange.store.errors import StorageFull, StoreBusy, StoreError

DATABASE = "store.db"
LOCK = "store.lock"


class DataDirectory:
    """A locked data directory; made by ``acquire``.

    Attributes:
        path: the directory.
        database: the database's file, which exists and only its owner may read.
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.database = path / DATABASE
        self._lock = lock

    @classmethod
    def acquire(cls, path: Path) -> "DataDirectory":
        """Create the directory if it is missing and lock it.

        Raises:
            StoreBusy: another process (or another store of this one) has it; names the process.
            StorageFull: there is no space for it.
            StoreError: it cannot be made or written; the message has cause and remedy.
        """
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unusable(path, error) from error
        directory = cls(path, lock)
        try:
            directory._lock_or_name_holder()
            directory._make_private()
        except OSError as error:
            directory.release()
            raise _unusable(path, error) from error
        except StoreError:
            directory.release()
            raise
        return directory

    def _lock_or_name_holder(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(self._lock, 32, 0).decode(errors="replace").strip()
            holder = f"process {pid}" if pid else "another process"
            raise StoreBusy(
                f"{self.path} is in use by {holder}: stop it or choose another data directory"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _make_private(self) -> None:
        # Before SQLite sees the file: its companions take over the mode of the database.
        database = os.open(self.database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(database, 0o600)
        finally:
            os.close(database)

    def release(self) -> None:
        """Unlock; idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _unusable(path: Path, error: OSError) -> StoreError:
    reason = error.strerror or str(error)
    where = error.filename or path
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StorageFull(f"{where}: {reason}: free space, then try again")
    return StoreError(
        f"{path} cannot hold data ({where}: {reason}): "
        "make it a directory that this user can write, or choose another data directory"
    )
