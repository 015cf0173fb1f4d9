"""Any object: what its conditions and its latest warnings say."""

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
        lines.append("Neither its conditions nor its events say that anything is wrong.")
    return WhyAnswer(document, lines)


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


def warning_lines(warnings: list[Document], now: float) -> list[str]:
    """They as lines under a heading; none where there are none."""
    rows = [
        [printer.age(item, now), str(item.get("reason", "")), str(item.get("message", "")).strip()]
        for item in warnings
    ]
    return ["", "Latest warnings:", *("  " + line for line in table.render(rows))] if rows else []
