"""The lock of a data directory: one runtime at a time starts programs there."""

import fcntl
import os
from pathlib import Path

from grange.agent.container_runtime import RuntimeFailedError
from grange.base.clock import Clock

_RETRY_S = 0.02


async def acquire(data_dir: Path, limit_s: float, clock: Clock) -> int:
    """Wait for the lock; make what is missing of the directory.

    Args:
        data_dir: has the lock and the directory ``pods``.
        limit_s: how long to wait for an earlier server's launcher to end.
        clock: time.

    Returns:
        The descriptor that holds it, which the launcher inherits.

    Raises:
        RuntimeFailedError: the directory is in use, or cannot be used.
    """
    path = data_dir / "runtime.lock"
    try:
        (data_dir / "pods").mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise RuntimeFailedError(f"data directory {data_dir}: {error.strerror}") from error
    try:
        await _lock(descriptor, path, limit_s, clock)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


async def _lock(descriptor: int, path: Path, limit_s: float, clock: Clock) -> None:
    deadline = clock.monotonic() + limit_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if clock.monotonic() >= deadline:
                raise RuntimeFailedError(
                    f"{path} is held: another server is using this data directory, or a "
                    "grange-launcher or grange-shim of an earlier one is stopped; end it first"
                ) from error
        await clock.sleep(_RETRY_S)
