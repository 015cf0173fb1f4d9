"""Names of evidence as paths: what comes from programs must stay inside its directory; pure."""

import hashlib
import re
from typing import NamedTuple

from grange.base.errors import GrangeError

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_LONGEST_SEGMENT = 200
_LONGEST_PATH = 1024
_LONGEST_NAME = 255  # bytes; what file systems allow
_DEEPEST = 32


class EvidencePathError(GrangeError):
    """A path may not be used; the message names it and the rule."""


class EvidenceKey(NamedTuple):
    """Whose evidence it is."""

    namespace: str
    name: str
    uid: str

    @property
    def directory(self) -> str:
        """Its directory, relative to the root."""
        return f"{segment(self.namespace)}/{segment(self.name)}-{segment(self.uid)}"


def segment(text: str) -> str:
    """One name of a path, unique for the text and safe on every file system.

    A name that the API allows stays as it is.
    """
    if _SEGMENT.fullmatch(text):
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
    readable = _UNSAFE.sub("_", text).lstrip(".")[: _LONGEST_SEGMENT - 20]
    # A tilde does not occur in names that stay as they are.
    return f"{readable}~{digest}"


def checked_uid(uid: str) -> str:
    """The UID.

    Raises:
        EvidencePathError: it could be something else than a UID.
    """
    if _UID.fullmatch(uid) is None:
        raise EvidencePathError("the UID of a session is malformed; use metadata.uid")
    return uid


def artifact_path(path: str) -> str:
    """The path of an artifact, relative to the directory of its component.

    Raises:
        EvidencePathError: it would leave the directory, or no file system could hold it.
    """
    if len(path) > _LONGEST_PATH:
        raise EvidencePathError(
            f"artifact {path[:80]!r}…: the path has {len(path)} characters; "
            f"{_LONGEST_PATH} are allowed"
        )
    parts = path.split("/")
    if len(parts) > _DEEPEST:
        raise EvidencePathError(
            f"artifact {path!r}: it lies in {len(parts) - 1} directories; "
            f"{_DEEPEST - 1} are allowed"
        )
    for part in parts:
        if part in {"", ".", ".."}:
            raise EvidencePathError(
                f"artifact {path!r}: the path must be relative and without '.' and '..'"
            )
        if part.startswith(PARTIAL):
            raise EvidencePathError(f"artifact {path!r}: names with {PARTIAL!r} are reserved")
        if not part.isprintable() or "\\" in part:
            raise EvidencePathError(
                f"artifact {path!r}: control characters and backslashes are not allowed"
            )
        if len(part.encode(errors="surrogatepass")) > _LONGEST_NAME:
            raise EvidencePathError(
                f"artifact {path[:80]!r}…: a name exceeds {_LONGEST_NAME} bytes"
            )
    return path


PARTIAL = ".partial-"
"""What the names of files begin with that are being written."""
