"""Explains any object by its conditions and latest warnings."""

from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.cli import readiness
from grange.cli.failures import latest_warnings, unmet
from grange.cli.printers import events as printer, table
from grange.cli.session import ApiSession
from grange.cli.why.answer import WhyAnswer


async def ask(opened: ApiSession, kind: AnyKind, name: str) -> WhyAnswer:
    """The object's conditions that do not hold, and its latest warnings."""
    document = await opened.document(kind, name)
    warnings = await latest_warnings(opened, document)
    state = readiness.ready(document)
    lines = [f"{kind.singular}/{name}: {state.text}"]
    lines += unmet_lines(document)
    lines += warning_lines(warnings, opened.env.clock.now().timestamp())
    if len(lines) == 1:
        lines.append("No condition or event reports a problem.")
    return WhyAnswer(document, lines)


def unmet_lines(document: Document) -> list[str]:
    """The conditions that report a problem, under a heading; empty without any."""
    rows = [
        [
            f"{item.get('type')}={item.get('status')}",
            str(item.get("reason") or ""),
            str(item.get("message") or ""),
        ]
        for item in unmet(document)
    ]
    return ["", "Conditions:", *("  " + line for line in table.render(rows))] if rows else []


def warning_lines(warnings: list[Document], now: float) -> list[str]:
    """The warnings under a heading; empty without any."""
    rows = [
        [printer.age(item, now), str(item.get("reason", "")), str(item.get("message", "")).strip()]
        for item in warnings
    ]
    return ["", "Latest warnings:", *("  " + line for line in table.render(rows))] if rows else []
