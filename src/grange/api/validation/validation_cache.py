"""Parts of documents that broke no rule when they were last looked at.

Pods come from templates: thousands bear the same containers and differ in name and node. Rules are
pure, so what broke none once breaks none whenever it comes again.
"""

from grange.api import codec
from grange.base.bounded import BoundedDict

_PARTS_MAX = 256
_PART_MAX_BYTES = 8_192  # with the number of parts: at most 2 MiB


class ValidationCache:
    """Remembers parts by their bytes, so that equal means equal in type and order, too.

    Attributes:
        looks: how often a part was not known, and had to be looked at.
    """

    def __init__(self) -> None:
        self.looks = 0
        self._known: BoundedDict[bytes, None] = BoundedDict(_PARTS_MAX)

    def __len__(self) -> int:
        return len(self._known)

    def unknown(self, part: object) -> bytes:
        """The part's bytes if it must be looked at; nothing if it is known to be without fault.

        Args:
            part: any JSON value; a fault may depend on nothing else.
        """
        body = codec.encode_any(part)
        if body in self._known:
            return b""
        self.looks += 1
        return body

    def add(self, body: bytes) -> None:
        """Remember a part, by the bytes that ``unknown`` gave, as one without fault."""
        if len(body) > _PART_MAX_BYTES:
            return
        self._known[body] = None
