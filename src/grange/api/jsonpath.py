r"""kubectl's JSONPath dialect, as far as its documentation goes.

A template is text with expressions in braces: ``{.items[*].metadata.name}{"\n"}``, with ``range``
and ``end``, quoted text, ``[n]``, ``[a:b]``, ``[*]``, ``['key']``, ``..name`` and filters
``[?(@.type=="Ready")]``. It differs from RFC 9535, so no library for that serves.
"""

import re
from collections.abc import Callable

import msgspec

from grange.base.errors import GrangeError

Values = list[object]

_STEP = re.compile(
    r"""\.\.(?P<deep>[\w-]+) | \.(?P<name>[\w\\/-](?:[\w/-]|\\.)*|\*) | \[\?\((?P<filter>.+?)\)\]
        | \[(?P<index>-?\d+)\] | \[(?P<start>-?\d*):(?P<stop>-?\d*)\] | \[(?P<all>\*)\]
        | \[(?P<quote>['"])(?P<key>.*?)(?P=quote)\]""",
    re.VERBOSE,
)
_FILTER = re.compile(
    r"^\s*@(?P<path>[^=!<>]*?)\s*(?:(?P<op>==|!=|<=|>=|<|>)\s*(?P<value>.+?))?\s*$"
)
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


class JsonPathError(GrangeError):
    """A template is malformed; the message shows where."""


def evaluate(template: str, document: object) -> str:
    """The template filled in from the document; missing fields give nothing.

    Raises:
        JsonPathError: it is malformed.
    """
    if template and not template.startswith("{") and "{" not in template:
        template = f"{{{template}}}"
    output, rest = _block(_tokens(template), 0, document)
    if rest is not None:
        raise JsonPathError("jsonpath: {end} without {range}")
    return output


def select(expression: str, document: object) -> Values:
    """The values that one expression selects: a path with or without its braces.

    Raises:
        JsonPathError: it is malformed, or not one path.
    """
    text = expression.strip()
    if not text.startswith("{"):
        return _select(text, document)
    tokens = _tokens(text)
    if len(tokens) != 1 or tokens[0][0] != "path":
        raise JsonPathError(f"jsonpath: {expression!r} is not one path; write {{.name}}")
    return _select(tokens[0][1], document)


def _tokens(template: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(template):
        if template[at] != "{":
            stop = template.find("{", at)
            stop = len(template) if stop < 0 else stop
            tokens.append(("text", template[at:stop]))
            at = stop
            continue
        stop = _closing(template, at)
        tokens.append(_token(template[at + 1 : stop].strip()))
        at = stop + 1
    return tokens


def _closing(template: str, start: int) -> int:
    quote = ""
    for at in range(start + 1, len(template)):
        character = template[at]
        if quote:
            quote = "" if character == quote and template[at - 1] != "\\" else quote
        elif character in "\"'":
            quote = character
        elif character == "}":
            return at
    raise JsonPathError(f"jsonpath: no closing brace after {template[start:]!r}")


def _token(body: str) -> tuple[str, str]:
    if body == "end":
        return "end", ""
    if body.startswith("range "):
        return "range", body[6:].strip()
    if body[:1] in {'"', "'"} and body[-1:] == body[:1] and len(body) > 1:
        text = body[1:-1]
        for escaped, plain in (("\\n", "\n"), ("\\t", "\t"), ('\\"', '"'), ("\\'", "'")):
            text = text.replace(escaped, plain)
        return "text", text
    return "path", body


def _block(tokens: list[tuple[str, str]], at: int, current: object) -> tuple[str, int | None]:
    """Evaluate until ``end`` or the last token; the second value is the place after ``end``."""
    output: list[str] = []
    while at < len(tokens):
        kind, body = tokens[at]
        at += 1
        if kind == "end":
            return "".join(output), at
        if kind == "text":
            output.append(body)
        elif kind == "path":
            output.append(" ".join(_text(value) for value in _select(body, current)))
        else:
            values = _select(body, current)
            after: int | None = None
            for value in values or [None]:
                inner, after = _block(tokens, at, value)
                if values:
                    output.append(inner)
            if after is None:
                raise JsonPathError("jsonpath: {range} without {end}")
            at = after
    return "".join(output), None


def _select(path: str, current: object) -> Values:
    path = path.removeprefix("$").removeprefix("@")
    if path in {"", "."}:
        return [current]
    if path[0] not in ".[":
        path = f".{path}"
    values: Values = [current]
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            raise JsonPathError(f"jsonpath: cannot read {path[at:]!r} in {path!r}")
        values = _step(match, values)
        at = match.end()
    return values


def _step(match: re.Match[str], values: Values) -> Values:
    part = match.groupdict()
    if part["deep"] is not None:
        return [hit for value in values for hit in _descend(value, part["deep"])]
    if part["name"] == "*" or part["all"]:
        return [child for value in values for child in _children(value)]
    key = part["name"] if part["name"] is not None else part["key"]
    if key is not None:
        key = key.replace("\\.", ".")
        return [value[key] for value in values if isinstance(value, dict) and key in value]
    lists = [value for value in values if isinstance(value, list)]
    if part["filter"] is not None:
        return [item for value in lists for item in value if _holds(part["filter"], item)]
    if part["index"] is not None:
        index = int(part["index"])
        return [value[index] for value in lists if -len(value) <= index < len(value)]
    start, stop = (int(part[name]) if part[name] else None for name in ("start", "stop"))
    return [item for value in lists for item in value[start:stop]]


def _children(value: object) -> Values:
    if isinstance(value, list):
        return list(value)
    return list(value.values()) if isinstance(value, dict) else []


def _descend(value: object, key: str) -> Values:
    found: Values = [value[key]] if isinstance(value, dict) and key in value else []
    for child in _children(value):
        found += _descend(child, key)
    return found


def _holds(condition: str, item: object) -> bool:
    match = _FILTER.match(condition)
    if match is None:
        raise JsonPathError(f"jsonpath: cannot read the filter {condition!r}")
    found = _select(match["path"] or ".", item)
    if match["op"] is None:
        return bool(found)
    try:
        wanted: object = msgspec.json.decode(match["value"].replace("'", '"'))
    except msgspec.DecodeError as error:
        raise JsonPathError(f"jsonpath: cannot read the value {match['value']!r}") from error
    if match["op"] in {"==", "!="}:
        return (bool(found) and found[0] == wanted) == (match["op"] == "==")
    first = found[0] if found else None
    if not isinstance(first, (int, float)) or not isinstance(wanted, (int, float)):
        return False
    return _COMPARE[match["op"]](first, wanted)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
