"""Edits of a kubeconfig's text: what does not change keeps its comments, order and style.

Only what differs between the text's document and the wanted one is spliced in, at the places that
the YAML parser reports. The result is parsed again and must be the wanted document exactly; where it
is not (flow style, anchors, several documents), there is no edit, and the caller decides.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import yaml

from grange.api.meta import Document

Edit: TypeAlias = tuple[int, int, str]  # from, to, what stands there then


def edited(text: str, before: Document, wanted: Document) -> str | None:
    """The text changed to what is wanted; None where that cannot be done by splicing.

    Args:
        text: of a file.
        before: its present content.
        wanted: its content afterwards: no key of ``before`` is missing, lists hold items with names.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if not isinstance(root, yaml.MappingNode) or root.flow_style:
            return None
        edits = [*_edits(text, root, before, wanted)]
        result = text
        for start, end, inserted in sorted(edits, key=lambda edit: edit[:2], reverse=True):
            result = result[:start] + inserted + result[end:]
        missing = {key: value for key, value in wanted.items() if key not in before}
        if missing:
            result = _with_newline(result) + _dump(missing)
        return result if yaml.safe_load(result) == wanted else None
    except yaml.YAMLError:
        return None


def _edits(text: str, root: yaml.MappingNode, before: Document, wanted: Document) -> Iterator[Edit]:
    for key, value in root.value:
        name = key.value
        if name not in wanted or before.get(name) == wanted[name]:
            continue
        old, new = before.get(name), wanted[name]
        if isinstance(value, yaml.SequenceNode) and not value.flow_style and old and new:
            yield from _item_edits(text, value, old, new)
        else:
            colon = text.index(":", key.end_mark.index) + 1
            yield colon, _end(value), _after_colon(new)


def _item_edits(
    text: str, node: yaml.SequenceNode, before: list[Any], wanted: list[Any]
) -> Iterator[Edit]:
    by_name = {item["name"]: item for item in wanted}
    indent = node.start_mark.column
    for item, part in zip(before, node.value, strict=True):
        new = by_name.pop(item["name"], None)
        if new is None:
            dash = text.rindex("-", 0, part.start_mark.index)
            yield text.rfind("\n", 0, dash) + 1, _line_end(text, _end(part)), ""
        elif new != item:
            yield part.start_mark.index, _end(part), _item(new, part.start_mark.column)
    at = _line_end(text, _end(node.value[-1]))
    added = "".join(f"{' ' * indent}- {_item(new, indent + 2)}\n" for new in by_name.values())
    if added:
        broken = at > 0 and text[at - 1] != "\n"
        yield at, at, f"\n{added}" if broken else added


def _item(item: Document, column: int) -> str:
    """An item as it stands behind its dash, its further lines at a column."""
    return _dump(item).rstrip("\n").replace("\n", "\n" + " " * column)


def _after_colon(value: Any) -> str:
    if isinstance(value, list) and value:
        return "\n" + _dump(value).rstrip("\n")
    return " " + _dump({"k": value}).removeprefix("k:").strip()


def _end(node: yaml.Node) -> int:
    """Where a node's own text ends; the parser counts the comments behind a block as part of it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(node, yaml.MappingNode) else last)
    index: int = node.end_mark.index
    return index


def _line_end(text: str, index: int) -> int:
    if index > 0 and text[index - 1] == "\n":
        return index
    newline = text.find("\n", index)
    return len(text) if newline < 0 else newline + 1


def _with_newline(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def _dump(value: Any) -> str:
    dumped: str = yaml.safe_dump(value, sort_keys=False, default_flow_style=False, width=1000)
    return dumped
