"""Control characters made visible: text of others must not command the terminal that shows it."""

import re

# C0, DEL and C1; in UTF-8 terminals take C1 for the same commands as ESC with a letter.
# Marks of direction change the order in which the rest of a line is shown (Unicode, UAX 9).
_DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_ANY = re.compile(rf"[\x00-\x1f\x7f-\x9f{_DIRECTION}]")
_ALL_BUT_LINES = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_DIRECTION}]")
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def escape(text: str, *, lines: bool = True) -> str:
    r"""The text with control characters written as ``\x1b``.

    Args:
        text: of whatever origin.
        lines: keep line breaks and tabs.
    """
    if text.isprintable():  # the common case, without a scan by the pattern
        return text
    return (_ALL_BUT_LINES if lines else _ANY).sub(_visible, text)


def escape_json(text: str) -> str:
    r"""Equal JSON text without DEL and C1; JSON itself forbids C0 within strings."""
    return re.sub(r"[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", text)


def _visible(match: re.Match[str]) -> str:
    number = ord(match[0])
    return _SHORT.get(match[0]) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")
