"""Opens and makes what is below a directory, wherever a program has put links.

Run in the shim, too, so it imports nothing but the standard library.
"""

import ctypes
import os
import struct

_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08

_libc = ctypes.CDLL(None, use_errno=True)


def open_beneath(directory: str, path: str, flags: int, *, links: bool = True) -> int:
    """Open a path that may not lead out of a directory, now or while it is opened.

    Args:
        directory: where the path begins; its own path may hold links.
        path: relative; empty for the directory itself.
        flags: as for ``os.open``.
        links: follow symbolic links that stay below the directory; False follows none.

    Raises:
        OSError: it is not there, or leads out of the directory (EXDEV or ELOOP).
    """
    if not path:
        return os.open(directory, flags | os.O_CLOEXEC)
    top = os.open(directory, os.O_PATH | os.O_CLOEXEC)
    try:
        resolve = _RESOLVE_BENEATH | (_RESOLVE_NO_MAGICLINKS if links else _RESOLVE_NO_SYMLINKS)
        how = struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, resolve)
        found = _libc.syscall(_OPENAT2, top, path.encode(), how, len(how))
        if found < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), f"{directory}/{path}")
        return int(found)
    finally:
        os.close(top)


def make_beneath(directory: str, path: str) -> None:
    """Let there be something at a path below a directory: directories, if there is nothing yet.

    Raises:
        OSError: it leads out of the directory, or the disk does not allow it.
    """
    try:
        os.close(open_beneath(directory, path, os.O_PATH))
    except FileNotFoundError:
        parent, _, name = path.strip("/").rpartition("/")
        if parent:
            make_beneath(directory, parent)
        at = open_beneath(directory, parent, os.O_PATH | os.O_DIRECTORY)
        try:
            os.mkdir(name, dir_fd=at)
        finally:
            os.close(at)
