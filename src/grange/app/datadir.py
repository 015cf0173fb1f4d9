"""The data directory: made on first use, its owner's alone."""

from pathlib import Path

from grange.base.errors import GrangeError


class DataDirectoryUnusable(GrangeError):
    """The data directory cannot be made or written; the message names it and what to do."""


def make_directory(path: Path) -> None:
    """Make it if it is missing, with mode 0700.

    Raises:
        DataDirectoryUnusable: it cannot be.
    """
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise DataDirectoryUnusable(
            f"cannot make the data directory {path}: {error.strerror}; name another with --data-dir"
        ) from error
