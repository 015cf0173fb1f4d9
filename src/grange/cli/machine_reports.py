"""Reports about node pools as lines: pure functions."""

from collections.abc import Sequence

from grange.api.meta import Document
from grange.base.plurals import counted
from grange.cli.printers import table

_PLAN_HEAD = ("ACTION", "MACHINE", "TYPE", "POD", "REASON")
_AUDIT_HEAD = ("MACHINE", "INSTANCE", "PROBLEM", "MESSAGE")


def plan_lines(reports: Sequence[Document]) -> list[str]:
    """What would be done for each pool."""
    lines: list[str] = []
    for report in reports:
        rows = [
            [
                one["action"],
                one["machine"],
                one.get("instanceType", ""),
                one["pod"],
                one["reason"],
            ]
            for one in report["decisions"]
        ]
        lines += _pool(report, _PLAN_HEAD, rows, "nothing is to be done")
    return lines


def audit_lines(reports: Sequence[Document]) -> list[str]:
    """What records and instances have different, by pool."""
    lines: list[str] = []
    for report in reports:
        rows = [
            [one["machine"], one["instance"], one["problem"], one["message"]]
            for one in report["differences"]
        ]
        counts = (
            f"{_count(report, 'machines', 'record')}, {_count(report, 'instances', 'instance')}"
        )
        lines += _pool(report, _AUDIT_HEAD, rows, f"records and provider agree ({counts})")
    return lines


def _count(report: Document, field: str, noun: str) -> str:
    return counted(report.get(field, 0), noun)


def agrees(report: Document) -> bool:
    """Whether an audit has shown that records and instances agree."""
    return not (report["refusal"] or report["differences"])


def _pool(report: Document, head: Sequence[str], rows: list[list[str]], none: str) -> list[str]:
    name = report["metadata"]["name"]
    if report["refusal"]:
        return [f"pool {name}: not known: {report['refusal']}"]
    if not rows:
        return [f"pool {name}: {none}"]
    omitted = report.get("omitted", 0)
    more = [f"  and {omitted} more"] if omitted else []
    return [f"pool {name}:", *(f"  {line}" for line in table.render([head, *rows])), *more]
