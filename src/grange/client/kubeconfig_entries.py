"""Grange's own entries in a kubeconfig, which carry the data directory that they are of.

The extension is kubectl's way to keep foreign facts: it survives its edits. Entries without it, or
with another directory, are never replaced or removed.
"""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grange.api.meta import Document
from grange.client.errors import KubeconfigError

KINDS = ("cluster", "user", "context")
"""What a list ``clusters``, ``users`` or ``contexts`` holds under its items' names."""

_MARK = "grange.dev"


def home_of(document: Document, context: str) -> str | None:
    """The data directory that a context was written for; None where Grange did not write it."""
    for item in document.get("contexts") or ():
        if item.get("name") == context:
            return mark_of(item.get("context"))
    return None


def mark_of(part: Any) -> str | None:
    """The data directory that an entry carries; None where Grange did not write it."""
    extensions = part.get("extensions") if isinstance(part, dict) else None
    for extension in extensions if isinstance(extensions, list) else ():
        if isinstance(extension, dict) and extension.get("name") == _MARK:
            held = extension.get("extension")
            return str(held.get("dataDirectory", "")) if isinstance(held, dict) else ""
    return None


def free_name(path: Path, name: str, home: str, documents: Sequence[Document]) -> str:
    """The name, or one made from it, under which every entry is ours or none is there.

    Raises:
        KubeconfigError: there is none.
    """
    digest = hashlib.sha256(home.encode()).hexdigest()
    for candidate in (name, f"{name}-{digest[:8]}", f"{name}-{digest[:16]}"):
        if all(
            mark_of(item.get(kind)) == home
            for document in documents
            for kind in KINDS
            for item in document.get(f"{kind}s") or ()
            if item.get("name") == candidate
        ):
            return candidate
    raise KubeconfigError(
        f"{path}: entries named {name} belong to something else, and no name made from it is free; "
        "rename them, or leave the file alone with --no-context"
    )


def entries(name: str, server: str, ca_pem: bytes, token: str, home: str) -> dict[str, Document]:
    """Cluster, user and context of this name, which carry the data directory."""
    mark = {"extensions": [{"name": _MARK, "extension": {"dataDirectory": home}}]}
    cluster: Document = {"server": server}
    if ca_pem:
        cluster["certificate-authority-data"] = base64.b64encode(ca_pem).decode()
    return {
        "clusters": {"name": name, "cluster": {**cluster, **mark}},
        "users": {"name": name, "user": {"token": token, **mark}},
        "contexts": {"name": name, "context": {"cluster": name, "user": name, **mark}},
    }


def with_context(document: Document, name: str, parts: dict[str, Document]) -> Document:
    """A copy of the document that has the context, current."""
    result: Document = {"apiVersion": "v1", "kind": "Config", **document}
    for key, entry in parts.items():
        items = list(document.get(key) or ())
        places = [index for index, item in enumerate(items) if item["name"] == name]
        if places:
            items[places[0]] = entry
        else:
            items.append(entry)
        result[key] = items
    result["current-context"] = name
    return result
