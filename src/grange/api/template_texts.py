"""Texts in which the specs of pods of one template differ, cut from the bytes of the specs.

Caches of specs are keyed by what is left: it is the same for all pods of the template.
"""

import re

import msgspec

from grange.api.names import DNS_LABEL_MAX


class TemplateText:
    """A member of a pod's spec that is a text.

    Quotes within a text are escaped, so the name of a member with its quotes is found in members only. That
    it is a member of the spec itself, and not of something within, is for ``is_own`` to find out.

    Args:
        field: the name of the member.
        plain: what a text must match to be cut.
    """

    def __init__(self, field: str, plain: str) -> None:
        self._start = b'"%b":"' % field.encode()
        self._plain = re.compile(plain.encode())
        type_ = msgspec.defstruct(field, [(field, str, "")], gc=False)
        self._decoder = msgspec.json.Decoder(type_)  # skips everything else, in little time

    def cut(self, spec: bytes) -> tuple[bytes, bytes] | None:
        """A spec in JSON without the last such text and its closing quote, and the text.

        Without the quote it is not JSON: no spec is equal to what is left of another.

        Returns:
            None if there is no such text in the usual spelling.
        """
        at = spec.rfind(self._start)
        if at < 0:
            return None
        at += len(self._start)
        end = spec.find(b'"', at)
        text = spec[at:end]
        if not self._plain.fullmatch(text):
            return None
        return spec[:at] + spec[end + 1 :], text

    def fill(self, rest: bytes, text: bytes) -> bytes:
        """The spec of which ``cut`` has left this, with another text."""
        at = rest.rfind(self._start) + len(self._start)
        return b'%b%b"%b' % (rest[:at], text, rest[at:])

    def is_own(self, rest: bytes) -> bool:
        """Whether the text that was cut is the spec's own, and not of something within the spec."""
        return all(self._read(self.fill(rest, text)) == text.decode() for text in (b"a", b"b"))

    def _read(self, spec: bytes) -> str | None:
        try:
            found = self._decoder.decode(spec)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        (value,) = msgspec.structs.astuple(found)
        return str(value)


NODE_NAME = TemplateText("nodeName", r"[-.0-9A-Za-z]*")
HOSTNAME = TemplateText("hostname", rf"[a-z0-9](?:[-a-z0-9]{{0,{DNS_LABEL_MAX - 2}}}[a-z0-9])?")
