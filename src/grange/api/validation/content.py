"""Rules that ConfigMap and Secret share."""

import base64
import binascii
from collections.abc import Iterable, Mapping

from grange.api.meta import Document
from grange.api.validation.causes import Faults

SIZE_MAX_BYTES = 1 << 20


def decode_base64(text: str) -> bytes | None:
    """The bytes of one value, or None when it is no base64."""
    try:
        # Line breaks inside the text are common in hand-made secrets, and allowed.
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return None


def check_size(contents: Iterable[Mapping[str, str]], faults: Faults) -> None:
    """Values may hold a mebibyte in all."""
    if (
        sum(len(text.encode()) for content in contents for text in content.values())
        > SIZE_MAX_BYTES
    ):
        faults.too_long("data", f"may not be more than {SIZE_MAX_BYTES} bytes")


def check_frozen(
    document: Document, old: Document | None, fields: Iterable[str], faults: Faults
) -> None:
    """An object marked immutable keeps its content, and the mark."""
    if old is None or not old.get("immutable"):
        return
    if not document.get("immutable"):
        faults.forbidden("immutable", "field is immutable when `immutable` is set")
    for field in fields:
        if (document.get(field) or {}) != (old.get(field) or {}):
            faults.forbidden(field, "field is immutable when `immutable` is set")
