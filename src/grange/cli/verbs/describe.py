"""``grange describe``: an object in full as text, with its conditions and its events."""

import click

from grange.api.kinds import EVENT
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.cli import options, session, terminal
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.printers import documents, events as printer, table
from grange.cli.refused_objects import RefusedObjects

_HIDDEN_ANNOTATIONS = {"kubectl.kubernetes.io/last-applied-configuration"}
_INDENT = 2


@click.command(cls=Command, examples=("grange describe pod/web-1",))
@options.WHAT
@options.output(documents.REPORT)
@options.connected
def command(
    env: Environment, target: session.ClusterTarget, what: tuple[str, ...], output: str
) -> None:
    """Show KIND NAME… or KIND/NAME… in full; KIND alone shows all of them."""
    pairs = session.split_names(what)

    async def verb(opened: session.ApiSession) -> int:
        blocks, items, refusals = [], [], RefusedObjects()
        asked = [(await opened.kind(word), name) for word, name in pairs]
        for kind, name in asked:
            with refusals.of_one():
                for document in await _documents(opened, kind, name):
                    events = await _events(opened, kind, document)
                    if output:
                        typed = {"apiVersion": kind.api_version, "kind": kind.kind, **document}
                        items.append({"object": typed, "events": events})
                        continue
                    now = env.clock.now().timestamp()
                    blocks.append("\n".join(describe(kind, document, events, now=now)))
        if output and (items or not refusals.count):
            terminal.write(documents.report(output, {"items": items}))
        elif blocks:
            terminal.echo("\n\n".join(blocks))
        elif not refusals.count:
            terminal.echo("No resources found.", err=True)
        return refusals.code

    session.run(env, target, verb)


async def _documents(opened: session.ApiSession, kind: AnyKind, name: str) -> list[Document]:
    if name:
        return [await opened.document(kind, name)]
    return await opened.listed(kind, opened.within(kind))


async def _events(opened: session.ApiSession, kind: AnyKind, document: Document) -> list[Document]:
    metadata = document["metadata"]
    selector = f"involvedObject.uid={metadata.get('uid', '')},involvedObject.kind={kind.kind}"
    namespace = metadata.get("namespace") or "default"
    return await opened.listed(EVENT, namespace, fields=selector)


def describe(kind: AnyKind, document: Document, events: list[Document], *, now: float) -> list[str]:
    """The description, line by line.

    Args:
        kind: the object's kind.
        document: the object.
        events: its events.
        now: wall time in seconds since the epoch, for ages.
    """
    metadata = dict(document["metadata"])
    lines = [f"Name:         {metadata.get('name', '')}"]
    if kind.namespaced:
        lines.append(f"Namespace:    {metadata.get('namespace', '')}")
    lines += _pairs("Labels:       ", metadata.get("labels") or {})
    annotations = metadata.get("annotations") or {}
    lines += _pairs(
        "Annotations:  ",
        {key: value for key, value in annotations.items() if key not in _HIDDEN_ANNOTATIONS},
    )
    for owner in metadata.get("ownerReferences") or []:
        word = "Controlled By:" if owner.get("controller") else "Owned By:     "
        lines.append(f"{word} {owner.get('kind')}/{owner.get('name')}")
    lines.append(f"Created:      {metadata.get('creationTimestamp', '')}")
    if metadata.get("deletionTimestamp"):
        lines.append(f"Terminating:  since {metadata['deletionTimestamp']}")
    status = dict(document.get("status") or {})
    conditions = status.pop("conditions", None) or []
    for part in (key for key in document if key not in _ENVELOPE):
        lines.append(f"{part.capitalize()}:")
        value = document[part]
        if kind.kind == "Secret" and isinstance(value, dict):
            value = {key: f"{len(str(item))} characters, hidden" for key, item in value.items()}
        lines += _tree(value, _INDENT)
    if status:
        lines.append("Status:")
        lines += _tree(status, _INDENT)
    if conditions:
        lines.append("Conditions:")
        rows = [["TYPE", "STATUS", "REASON", "MESSAGE"]]
        rows += [
            [str(item.get(key, "")) for key in ("type", "status", "reason", "message")]
            for item in conditions
        ]
        lines += [" " * _INDENT + line for line in table.render(rows)]
    return lines + _event_lines(events, now)


_ENVELOPE = {"apiVersion", "kind", "metadata", "status"}


def _pairs(heading: str, pairs: Document) -> list[str]:
    if not pairs:
        return [f"{heading}<none>"]
    texts = [f"{key}={pairs[key]}" for key in sorted(pairs)]
    return [heading + texts[0]] + [" " * len(heading) + text for text in texts[1:]]


def _tree(value: object, indent: int) -> list[str]:
    pad = " " * indent
    if isinstance(value, dict):
        lines: list[str] = []
        for key, item in value.items():
            if isinstance(item, (dict, list)) and item:
                lines.append(f"{pad}{key}:")
                lines += _tree(item, indent + _INDENT)
            elif isinstance(item, str) and "\n" in item:
                lines.append(f"{pad}{key}:")
                lines += [" " * (indent + _INDENT) + line for line in item.splitlines()]
            else:
                lines.append(f"{pad}{key}: {_scalar(item)}")
        return lines
    if isinstance(value, list):
        if any(isinstance(item, str) and "\n" in item for item in value):
            return [line for item in value for line in _item(_scalar(item), pad)]
        if all(not isinstance(item, (dict, list)) for item in value):
            return [pad + ", ".join(_scalar(item) for item in value)]
        lines = []
        for item in value:
            inner = _tree(item, indent + _INDENT)
            lines += [f"{pad}- {inner[0].strip()}", *inner[1:]] if inner else [f"{pad}-"]
        return lines
    return [pad + _scalar(value)]


def _item(text: str, pad: str) -> list[str]:
    """A text of several lines as an item of a list."""
    first, *rest = text.splitlines() or [""]
    return [f"{pad}- {first}", *(f"{pad}  {line}" for line in rest)]


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<none>" if value in (None, {}, [], "") else str(value)


def _event_lines(events: list[Document], now: float) -> list[str]:
    if not events:
        return ["Events: <none>"]
    rows = [["TYPE", "REASON", "AGE", "FROM", "MESSAGE"]]
    for event in printer.in_order(events):
        source = (event.get("source") or {}).get("component") or event.get("reportingComponent", "")
        rows.append(
            [
                str(event.get("type", "")),
                str(event.get("reason", "")),
                printer.age(event, now),
                str(source),
                str(event.get("message", "")).strip(),
            ]
        )
    return ["Events:", *(" " * _INDENT + line for line in table.render(rows))]
