"""An explanation as text: the summary first, then the evidence."""

from datetime import datetime

from grange.api import timestamps
from grange.api.explanation import Attempt, Change, Choice, Explanation, SchedulingState
from grange.base.plurals import counted
from grange.cli.printers import table


def render(name: str, found: Explanation, *, now: datetime) -> list[str]:
    """Lines for a terminal.

    Args:
        name: what is explained, as kind/name.
        found: the answer.
        now: for ages.
    """
    lines = [f"{name} {found.summary}"]
    lines += _times(found, now)
    if found.hint:
        lines.append(f"What to do: {found.hint}.")
    lines += obstacles(found)
    if found.choice is not None:
        lines += ["", *_choice(found, found.choice)]
    return lines + _attempts(found, now)


def obstacles(found: Explanation) -> list[str]:
    """Counts, near nodes and what would help; nothing where nothing is in the way."""
    lines: list[str] = []
    if found.reasons:
        lines += ["", _heading(found)]
        rows = [[str(item.nodes), item.reason] for item in found.reasons]
        wide = max(len(row[0]) for row in rows)
        lines += [f"  {count.rjust(wide)}  {reason}" for count, reason in rows]
    if found.changes:
        lines += ["", "It would fit" if found.gang is None else "All of its pods would fit"]
        lines += [f"  • {_change(item)}" for item in found.changes]
    if found.nearest:
        lines += ["", "Nearest nodes:" if found.state is not SchedulingState.PLACED else "By now:"]
        rows = [
            [item.name if at == 0 else "", missing]
            for item in found.nearest
            for at, missing in enumerate(item.missing or ("",))
        ]
        lines += ["  " + line for line in table.render(rows)]
    return lines


def _heading(found: Explanation) -> str:
    if found.gang is None:
        return f"{found.feasible} of {counted(found.nodes, 'node')} would do:"
    fit = f"{found.gang.room} of {found.gang.pods} pods fit"
    return f"{fit}; why {counted(found.nodes, 'node')} would not take one more:"


def _times(found: Explanation, now: datetime) -> list[str]:
    parts = []
    if found.waiting_since:
        since = timestamps.parse(found.waiting_since)
        parts.append(f"since {_clock(since, now)} ({_ago(since, now)})")
    if found.until:
        until = timestamps.parse(found.until)
        left = max(0.0, (until - now).total_seconds())
        parts.append(
            f"tried again at {_clock(until, now)} at the latest (in {timestamps.age(left)})"
        )
    return ["  " + ", ".join(parts)] if parts else []


def _change(item: Change) -> str:
    if not item.nodes:
        return item.text
    names = ", ".join(item.examples) + (", …" if item.nodes > len(item.examples) else "")
    if item.nodes == 1:
        # What ends on a node names it already.
        where = "" if f" on {names} " in f"{item.text} " else f"on {names} "
    else:
        where = f"on {item.nodes} nodes ({names}) "
    return where + item.text


def _choice(found: Explanation, choice: Choice) -> list[str]:
    placed = found.state in {SchedulingState.PLACED, SchedulingState.BINDING}
    would = f"{choice.candidates} of {counted(found.nodes, 'node')} would do"
    if not choice.runner_up:
        return [f"{would}: {choice.node} is the only one."]
    heading = f"Why {choice.node}" if placed else f"It would go to {choice.node} now"
    note = ", as things are now and without counting the pod itself" if placed else ""
    lines = [f"{heading} ({would}{note}):"]
    rows = [["", choice.node, choice.runner_up]]
    for name, part in choice.parts.items():
        rows.append([name, str(part), str(choice.runner_up_parts.get(name, 0))])
    rows.append(["total", str(choice.score), str(choice.runner_up_score)])
    lines += ["  " + line for line in _right(rows)]
    if choice.score < choice.runner_up_score:
        lines.append(f"  Today {choice.runner_up} would be preferred; it was otherwise then.")
    elif choice.score == choice.runner_up_score:
        lines.append("  Equal: the first in the order of zones and nodes is taken.")
    return lines


def _right(rows: list[list[str]]) -> list[str]:
    wide = table.widths(rows)
    return [
        row[0].ljust(wide[0])
        + "".join("  " + cell.rjust(wide[at + 1]) for at, cell in enumerate(row[1:]))
        for row in rows
    ]


def _attempts(found: Explanation, now: datetime) -> list[str]:
    if not found.attempts:
        return []
    lines = ["", "Attempts:"]
    rows = [[_span(item, now), _outcome(item)] for item in found.attempts]
    return lines + ["  " + line for line in table.render(rows)]


def _span(item: Attempt, now: datetime) -> str:
    last = timestamps.parse(item.time)
    if item.times == 1:
        return _clock(last, now)
    since = _clock(timestamps.parse(item.since), now)
    until = _clock(last, now)
    return f"{since if since == until else f'{since} to {until}'}, {counted(item.times, 'time')}"


def _outcome(item: Attempt) -> str:
    if item.result == "scheduled":
        score = f" (score {item.score})" if item.score >= 0 else ""
        return f"{item.node}{score}"
    return item.message


def _clock(at: datetime, now: datetime) -> str:
    """The time of day in UTC, with the date where it is not today's."""
    return at.strftime("%H:%M:%SZ" if at.date() == now.date() else "%Y-%m-%d %H:%M:%SZ")


def _ago(at: datetime, now: datetime) -> str:
    return f"{timestamps.age(max(0.0, (now - at).total_seconds()))} ago"
