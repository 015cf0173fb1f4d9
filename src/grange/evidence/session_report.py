"""One self-contained HTML page about a session: nothing in it is loaded from elsewhere; pure."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape

import msgspec

from grange.evidence import regression, session_charts
from grange.evidence.plain_text import clean, tail
from grange.evidence.regression import RegressionCheck
from grange.evidence.session_record import ComponentRecord, KeptFile, SessionRecord

_LOG_LIMIT = 1_000_000  # characters of one log; browsers show more with difficulty
_THRESHOLD = 0.1

_STYLE = """
:root{color-scheme:light dark;--fg:#1c2126;--bg:#fff;--soft:#f3f5f7;--line:#d5dbe1;--dim:#5b6670;
--good:#1a7f4b;--bad:#c2362b;--warn:#9a6700;--accent:#2f6fb5}
@media(prefers-color-scheme:dark){:root{--fg:#e4e8ec;--bg:#14181c;--soft:#1e242a;--line:#38424c;
--dim:#98a4b0;--good:#4cc38a;--bad:#f2776b;--warn:#e0b341;--accent:#74aeea}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);margin:0 auto;
max-width:960px;padding:24px}
h1{font-size:24px;margin:0 0 4px;overflow-wrap:anywhere}h2{font-size:17px;margin:28px 0 8px}
.badge{display:inline-block;padding:2px 12px;border-radius:12px;color:var(--bg);font-weight:600;
background:var(--dim)}
.badge.passed,.badge.better{background:var(--good)}.badge.failed,.badge.worse{background:var(--bad)}
.badge.error{background:var(--warn)}
.dim{color:var(--dim)}p.message{white-space:pre-wrap;overflow-wrap:anywhere}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:5px 10px 5px 0;border-bottom:1px solid var(--line);
overflow-wrap:break-word}th{color:var(--dim);font-weight:500;white-space:nowrap}
.events td:first-child{white-space:nowrap;font-variant-numeric:tabular-nums}
.components td:nth-child(6),.events td:nth-child(4){min-width:16em}
.components td:nth-child(7){min-width:14em;overflow-wrap:anywhere}
pre{background:var(--soft);padding:10px;overflow:auto;max-height:420px;font-size:12.5px;
border-radius:4px;white-space:pre-wrap;overflow-wrap:anywhere}
summary{cursor:pointer;padding:4px 0}
svg{max-width:100%;min-width:720px;height:auto;font:12px system-ui,sans-serif}svg text{fill:var(--fg)}
.queued{fill:var(--line)}.provisioning{fill:var(--warn)}.running{fill:var(--accent)}
.component{fill:var(--good)}.failed{fill:var(--bad)}line.mark{stroke:var(--dim);stroke-dasharray:2 3}
line.baseline{stroke:var(--dim);stroke-dasharray:6 4}line.change{stroke:var(--warn);stroke-width:2}
polyline{fill:none;stroke:var(--accent);stroke-width:1.5}circle.run{fill:var(--accent)}
circle.last{fill:var(--fg)}circle.worse{fill:var(--bad)}circle.better{fill:var(--good)}
"""


def render(
    record: SessionRecord,
    *,
    history: Mapping[str, Sequence[float]] | None = None,
    baseline: Mapping[str, Sequence[float]] | None = None,
    logs: Mapping[str, str] | None = None,
) -> bytes:
    """The page, in UTF-8.

    Args:
        record: of the session.
        history: values of earlier runs by metric, in the order of time, without this one's.
        baseline: values to compare with, by metric; by default those of earlier runs.
        logs: texts of logs by the path of the file; by default the tails that the record has.
    """
    title = _text(f"{record.name}: {record.verdict or record.phase}")
    body = "".join(_body(record, history or {}, baseline or {}, logs or {}))
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        # Whatever a log holds: the page runs no script and loads nothing.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{title}</title><style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )
    return page.encode()


def compare(
    record: SessionRecord,
    history: Mapping[str, Sequence[float]],
    baseline: Mapping[str, Sequence[float]] | None = None,
) -> dict[str, RegressionCheck]:
    """The comparison of each figure.

    Args:
        record: of the session.
        history: values of earlier runs by metric, in the order of time.
        baseline: values by metric; a figure that has some is compared with them alone.
    """
    given = baseline or {}
    return {
        metric.name: regression.check(
            # A level of many runs would hide how this one differs from a baseline that was given.
            [*(() if metric.name in given else history.get(metric.name, ())), metric.value],
            better=metric.better,
            threshold=record.thresholds.get(metric.name, _THRESHOLD),
            baseline=given.get(metric.name, ()),
        )
        for metric in record.metrics
    }


def _body(
    record: SessionRecord,
    history: Mapping[str, Sequence[float]],
    baseline: Mapping[str, Sequence[float]],
    logs: Mapping[str, str],
) -> Iterator[str]:
    yield from _head(record)
    if drawn := session_charts.timeline(record):
        yield f'<h2>Timeline</h2><div class="wide">{drawn}</div>'
    yield from _metrics(record, history, baseline)
    yield _table(
        "Components",
        ("component", "role", "node", "health", "exit code", "message", "image"),
        [_component(item) for item in record.components],
    )
    yield _table(
        "Events",
        ("time", "event", "component", "message"),
        [
            (_text(e.time), _text(e.type), _text(e.component), _text(e.message))
            for e in record.events
        ],
    )
    yield from _logs(record, logs)
    yield _table("Artifacts", ("file", "bytes", "not kept because"), [*_artifacts(record)])
    yield _table(
        "Machines",
        ("node", "pool", "CPU", "memory", "system", "kernel"),
        [
            tuple(
                _text(fact)
                for fact in (
                    n.name,
                    n.pool,
                    n.cpu,
                    n.memory,
                    f"{n.os_image} {n.architecture}",
                    n.kernel,
                )
            )
            for n in record.nodes
        ],
    )
    for name, value in (("Scenario", record.scenario), ("Result", record.result)):
        if value is not None:
            text = msgspec.json.format(msgspec.json.encode(value)).decode(errors="replace")
            yield f"<h2>{name}</h2>{_folded('JSON', tail(text, _LOG_LIMIT))}"


def _head(record: SessionRecord) -> Iterator[str]:
    verdict = record.verdict or record.phase
    yield f"<h1>{_text(record.name)}</h1>"
    reason = f" {_text(record.reason)}" if record.reason else ""
    yield f'<p><span class="badge {_text(verdict).lower()}">{_text(verdict)}</span>{reason}</p>'
    if record.message:
        yield f'<p class="message">{_text(record.message)}</p>'
    facts = [
        ("test", record.test_name),
        ("namespace", record.namespace),
        ("phase", record.phase),
        ("attempts", str(record.attempts)),
        ("created", record.creation_time or ""),
        ("duration", f"{record.duration_s:.1f} s"),
        ("UID", record.uid),
        *sorted(record.properties.items()),
    ]
    shown = " · ".join(f"{_text(name)} {_text(value)}" for name, value in facts if value)
    yield f'<p class="dim">{shown}</p>'
    if record.notes:
        items = "".join(f"<li>{_text(note)}</li>" for note in record.notes)
        yield f"<h2>Missing evidence</h2><ul>{items}</ul>"


def _metrics(
    record: SessionRecord,
    history: Mapping[str, Sequence[float]],
    baseline: Mapping[str, Sequence[float]],
) -> Iterator[str]:
    if not record.metrics:
        return
    yield "<h2>Figures</h2>"
    checks = compare(record, history, baseline)
    for metric in record.metrics:
        check = checks[metric.name]
        values = [*history.get(metric.name, ()), metric.value][-regression.MOST_RUNS :]
        value = _text(f"{metric.value:.6g} {metric.unit}".strip())
        badge = f'<span class="badge {check.verdict.lower()}">{check.verdict}</span>'
        yield f"<p><b>{_text(metric.name)}</b> {value} {badge} "
        yield f'<span class="dim">{_text(check.message)}</span></p>'
        if drawn := session_charts.plot(values, check, metric.unit):
            yield f'<div class="wide">{drawn}</div>'


def _component(item: ComponentRecord) -> tuple[str, ...]:
    code = "" if item.exit_code is None else str(item.exit_code)
    facts = (item.name, item.role, item.node, item.health, code, item.message, item.image)
    return tuple(_text(fact) for fact in facts)


def _logs(record: SessionRecord, logs: Mapping[str, str]) -> Iterator[str]:
    found: list[str] = []
    for item in record.components:
        files = item.logs or ((KeptFile("the end of its log"),) if item.tail else ())
        for at, log in enumerate(files):
            text = logs.get(log.path, item.tail if at == 0 else "")
            note = f" ({log.note})" if log.note else ""
            opened = item.is_failed and bool(text)
            found.append(
                _folded(f"{item.name}: {log.path}{note}", tail(text, _LOG_LIMIT), opened=opened)
            )
    if found:
        yield "<h2>Logs</h2>" + "".join(found)


def _artifacts(record: SessionRecord) -> Iterator[tuple[str, ...]]:
    for item in record.components:
        for file in item.artifacts:
            yield _text(file.path), str(file.size), _text(file.note)


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{name}</th>" for name in heads)
    body = session_charts.rows(rows)
    table = f'<table class="{title.lower()}"><tr>{head}</tr>{body}</table>'
    return f'<h2>{title}</h2><div class="wide">{table}</div>'


def _folded(title: str, text: str, *, opened: bool = False) -> str:
    state = " open" if opened else ""
    shown = _text(text) or "(empty)"
    return f"<details{state}><summary>{_text(title)}</summary><pre>{shown}</pre></details>"


def _text(text: str) -> str:
    return escape(clean(text))
