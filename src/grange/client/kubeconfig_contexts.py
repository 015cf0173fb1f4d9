"""Grange's own context in a kubeconfig: written and merged without touching the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from grange.api.meta import Document
from grange.client.errors import KubeconfigError
from grange.client.kubeconfig_edit import edited
from grange.client.kubeconfig_entries import (
    entries,
    free_name,
    home_of,
    with_context,
)
from grange.client.kubeconfig_file import parse, read, text_of
from grange.client.private_file import locked, replace


@dataclass(frozen=True, slots=True)
class Merged:
    """What became of a merge.

    Attributes:
        context: the context's name.
        current: whether it is the current context.
    """

    context: str
    current: bool


def write(path: Path, name: str, server: str, ca_pem: bytes, token: str, *, home: str = "") -> None:
    """Write a file with this one context, current; replaces what is there. Mode 0600.

    Raises:
        KubeconfigError: it cannot be written.
    """
    parts = entries(name, server, ca_pem, token, home)
    replace(path, _dump(with_context({}, name, parts)))


def merge(  # noqa: PLR0913  an entry's parts, and where it goes
    path: Path,
    name: str,
    server: str,
    ca_pem: bytes,
    token: str,
    *,
    switch: bool,
    home: str = "",
    others: Sequence[Path] = (),
) -> Merged:
    """Put a context into a file that may hold others, under its lock.

    Its entries carry the directory that they are of, and only entries of the same directory are
    replaced: where the name belongs to another, in any of the files, another one is made from it.
    Comments and order of the rest of the file stay.

    Args:
        path: the file; made if missing.
        name: of context, cluster and user, if it is free.
        server: base URL.
        ca_pem: the certificate to trust.
        token: bearer token.
        switch: also make it the current context. It becomes so anyway if there is none, or if the
            current one was written by Grange, too.
        home: the data directory; marks the owner of the entries.
        others: further files that are read together with this one.

    Raises:
        KubeconfigError: the file is no kubeconfig, locked by another program, or not writable; no
            name is free; comments would be lost. It stays as it was.
    """
    with locked(path):
        text, document = text_of(path), read(path) or {}
        parse(path, document)
        other_files = [read(other) or {} for other in others if other != path]
        name = free_name(path, name, home, (document, *other_files))
        wanted = with_context(document, name, entries(name, server, ca_pem, token, home))
        current = document.get("current-context")
        owned = current is not None and home_of(document, str(current)) is not None
        if current and not switch and not owned:
            wanted["current-context"] = current
        if wanted != document:
            replace(path, _rewritten(path, text, document, wanted))
        return Merged(name, wanted["current-context"] == name)


def current_home(paths: Sequence[Path]) -> tuple[str, str | None]:
    """The current context of some files, and the data directory that Grange wrote it for, if it did.

    Raises:
        KubeconfigError: a file cannot be read.
    """
    documents = [read(path) or {} for path in paths]
    current = next((str(d["current-context"]) for d in documents if d.get("current-context")), "")
    for document in documents:
        if any(item.get("name") == current for item in document.get("contexts") or ()):
            return current, home_of(document, current)
    return current, None


def _rewritten(path: Path, text: str, before: Document, wanted: Document) -> bytes:
    """The file with what changed; rewritten only where that loses no comment."""
    result = edited(text, before, wanted) if before else None
    if result is not None:
        return result.encode()
    if "#" in text:
        raise KubeconfigError(
            f"{path}: it is written in a style that cannot be extended without losing its comments; "
            "name another file in KUBECONFIG, or leave it alone with --no-context"
        )
    return _dump(wanted)


def _dump(document: Document) -> bytes:
    return yaml.safe_dump(document, sort_keys=False, default_flow_style=False).encode()
