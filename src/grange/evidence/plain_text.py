"""Text of programs made fit for documents: without escape sequences and illegal characters; pure."""

import re

# ECMA-48: a control sequence, an operating system command, or a short escape.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# What XML 1.0 does not allow (section 2.2), not even as a reference.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(text: str) -> str:
    """The text without colours and without characters that XML and HTML do not allow."""
    return _ILLEGAL.sub("", _ESCAPES.sub("", text))


def tail(text: str, limit: int) -> str:
    """The end of a text, from the beginning of a line on where it is cut, with a mark."""
    if len(text) <= limit:
        return text
    kept = text[-limit:]
    _, newline, rest = kept.partition("\n")
    kept = rest if newline and rest else kept
    return f"… {len(text) - len(kept)} characters before\n{kept}"
