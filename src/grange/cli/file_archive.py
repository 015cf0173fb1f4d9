"""Files as tar archives in a stream: what ``grange cp`` sends and what it gets."""

import io
import posixpath
import stat
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from grange.base.errors import GrangeError

_READ_BYTES = 64 * 1024


# Later versions of Python have further checks.
_SAFE: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}

Report = Callable[[str], None]


class CopyFailed(GrangeError):
    """Files could not be copied."""


@dataclass(frozen=True, slots=True)
class PodPath:
    """A path in a pod, as ``POD:PATH``.

    Attributes:
        pod: as verbs take it.
        path: absolute, or relative to the container's working directory.
    """

    pod: str
    path: str

    @property
    def parent(self) -> str:
        """The directory that holds it."""
        return posixpath.dirname(self._plain) or "."

    @property
    def name(self) -> str:
        """Its name there; ``.`` for a directory that has none."""
        return posixpath.basename(self._plain) or "."

    @property
    def _plain(self) -> str:
        return self.path.rstrip("/") or "/"


def read_path(word: str) -> PodPath | Path:
    """``POD:PATH``, or else a path of this machine; one that begins with ``.`` or ``/`` is its own."""
    pod, colon, path = word.partition(":")
    if not colon or word.startswith((".", "/")):
        return Path(word)
    return PodPath(pod, path or ".")


def pack(path: Path, name: str, skipped: Report) -> Iterator[bytes]:
    """An archive of a file, or of a directory with all that is below.

    Args:
        path: what is packed.
        name: that it gets in the archive.
        skipped: takes the paths of what cannot be packed: sockets and the like.

    Raises:
        CopyFailed: it cannot be read.
    """
    found = path
    try:
        with tarfile.open(fileobj=io.BytesIO(), mode="w") as headers:
            for found, inner in _walk(path, name):
                if not _is_packable(found.lstat().st_mode):
                    skipped(str(found))
                    continue
                info = headers.gettarinfo(found, inner)
                yield info.tobuf(tarfile.PAX_FORMAT)
                if info.isreg():
                    yield from _content(found, info.size)
    except OSError as error:
        raise CopyFailed(f"cannot read {found}: {error.strerror or error}") from error
    yield bytes(2 * tarfile.BLOCKSIZE)


def _is_packable(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _walk(path: Path, name: str) -> Iterator[tuple[Path, str]]:
    yield path, name
    if path.is_dir() and not path.is_symlink():
        for child in sorted(path.iterdir()):
            yield from _walk(child, f"{name}/{child.name}")


def _content(path: Path, size: int) -> Iterator[bytes]:
    """Exactly so many bytes, as the header has it: a file may change while it is read."""
    left = size
    with path.open("rb") as file:
        while left:
            piece = file.read(min(left, _READ_BYTES)) or bytes(min(left, _READ_BYTES))
            left -= len(piece)
            yield piece
    yield bytes(-size % tarfile.BLOCKSIZE)


def unpack(archive: IO[bytes], name: str, target: Path, skipped: Report) -> int:
    """Write what an archive holds; nothing of it gets outside of the target.

    Links come last, so that nothing is written through them, and only those that stay inside.

    Args:
        archive: to be read from its position.
        name: of the file or directory in the archive.
        target: that it becomes.
        skipped: takes the names of what is not written.

    Returns:
        How many files, directories and links were written.

    Raises:
        CopyFailed: the archive is damaged, or cannot be written.
    """
    count, links = 0, []
    try:
        with tarfile.open(fileobj=archive, mode="r:") as tar:
            for member in tar:
                found = member.replace(name=_under(member.name, name, target.name))
                if found.isreg() or found.isdir():
                    tar.extract(found, target.parent, **_SAFE)
                    count += 1
                elif found.issym() and _is_inside(found, target.name):
                    links.append(found)
                elif found.islnk():
                    links.append(found.replace(linkname=_under(found.linkname, name, target.name)))
                else:
                    skipped(found.name)
            for found in links:
                tar.extract(found, target.parent, **_SAFE)
                count += 1
    except (tarfile.TarError, EOFError) as error:
        raise CopyFailed(f"cannot unpack {name}: {error}") from error
    except OSError as error:
        raise CopyFailed(f"cannot write {target}: {error.strerror or error}") from error
    return count


def _under(path: str, name: str, new: str) -> str:
    """A path of the archive with the new name in the place of the old one."""
    plain = posixpath.normpath(path)
    if name == "." and not plain.startswith(("/", "..")):
        return posixpath.normpath(posixpath.join(new, plain))
    if plain != name and not plain.startswith(f"{name}/"):
        raise CopyFailed(f"cannot unpack {path}: it is not in {name}")
    return new + plain[len(name) :]


def _is_inside(link: tarfile.TarInfo, root: str) -> bool:
    """Whether a symbolic link stays below the root."""
    place = posixpath.normpath(posixpath.join(posixpath.dirname(link.name), link.linkname))
    return place == root or place.startswith(f"{root}/")
