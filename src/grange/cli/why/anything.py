"""Any object: what its conditions and its latest warnings say."""

from grange.api.codec import decode_document
from grange.api.kinds import EVENT
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.wire import Request
from grange.cli import readiness
from grange.cli.printers import events as printer, table
from grange.cli.session import Session
from grange.cli.why.answer import Answer

_LATEST = 5
# In conditions of these types it is True that says that something is wrong.
_BAD = frozenset({"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"}) | {
    "Paused",
    "InsufficientNodes",
    "Misplaced",
    "RolloutFailed",
    "AuditRefused",
}


async def ask(opened: Session, kind: AnyKind, name: str) -> Answer:
    """The object's conditions that do not hold, and its latest warnings."""
    document = await opened.document(kind, name)
    warnings = await latest_warnings(opened, kind, document)
    state = readiness.ready(document)
    lines = [f"{kind.singular}/{name}: {state.text}"]
    lines += unmet_lines(document)
    lines += warning_lines(warnings, opened.around.clock.now().timestamp())
    if len(lines) == 1:
        lines.append("Neither its conditions nor its events say that anything is wrong.")
    return Answer(document, lines)


def unmet(document: Document) -> list[Document]:
    """The conditions that say that something is not as it should be."""
    found = []
    for item in (document.get("status") or {}).get("conditions") or []:
        wanted = "False" if item.get("type") in _BAD else "True"
        if item.get("status") != wanted:
            found.append(item)
    return found


def unmet_lines(document: Document) -> list[str]:
    """The same as lines under a heading; none where all is well."""
    rows = [
        [
            f"{item.get('type')}={item.get('status')}",
            str(item.get("reason") or ""),
            str(item.get("message") or ""),
        ]
        for item in unmet(document)
    ]
    return ["", "Conditions:", *("  " + line for line in table.render(rows))] if rows else []


async def latest_warnings(opened: Session, kind: AnyKind, document: Document) -> list[Document]:
    """The latest warnings about an object, the latest last."""
    meta = document["metadata"]
    selector = f"involvedObject.uid={meta.get('uid', '')},type=Warning"
    path = EVENT.path(meta.get("namespace") or "default")
    request = Request("GET", path, query={"fieldSelector": selector})
    body = decode_document((await opened.fetch(request)).body)
    return printer.in_order(body.get("items") or [])[-_LATEST:]


def warning_lines(warnings: list[Document], now: float) -> list[str]:
    """They as lines under a heading; none where there are none."""
    rows = [
        [printer.age(item, now), str(item.get("reason", "")), str(item.get("message", "")).strip()]
        for item in warnings
    ]
    return ["", "Latest warnings:", *("  " + line for line in table.render(rows))] if rows else []
