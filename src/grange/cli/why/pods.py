"""Explains a pod: by its scheduler, and once it has a node, by its containers."""

from datetime import datetime

from grange.api import codec, explanation as http
from grange.api.explanation import Explanation, SchedulingState
from grange.api.http import Request
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import Forbidden, MethodNotAllowed, NotFound, ServiceUnavailable
from grange.cli import failures, readiness
from grange.cli.printers import explanation_text as printer
from grange.cli.session import ApiSession
from grange.cli.why import generic, machine_attempts
from grange.cli.why.answer import WhyAnswer

# A server of Kubernetes does not serve the path, and refuses it to most users for that reason.
_NO_SCHEDULER = (NotFound, MethodNotAllowed, ServiceUnavailable, Forbidden)


async def ask(opened: ApiSession, kind: AnyKind, name: str) -> WhyAnswer:
    """Ask the scheduler; where none answers, explain the pod by its status and note that."""
    document = await opened.document(kind, name)
    now = opened.env.clock.now()
    try:
        found = await explanation(opened, kind, name)
    except _NO_SCHEDULER as error:
        fallback = await generic.ask(opened, kind, name)
        text = await _describe(opened, document, now)
        attempts = await machine_attempts.look(opened, document)
        note = f"(No scheduler answers: {error.message})"
        return WhyAnswer(
            document,
            [f"{kind.singular}/{name}: {text}", *fallback.lines[1:], *attempts.lines, "", note],
        )
    attempts = await machine_attempts.look(opened, document)
    found = attempts.applied(found)
    lines = printer.render(f"pod/{name}", found, now=now)
    is_failed = found.state is SchedulingState.FINISHED and not readiness.ready(document).done
    if found.state is SchedulingState.PLACED or is_failed:
        programs = await _programs(opened, document, now)
        # What is wrong comes before why the pod is on its node.
        at = len(lines) if readiness.ready(document).done else 1
        lines[at:at] = programs
    lines += attempts.lines
    return WhyAnswer(http.document(found), lines)


async def explanation(
    opened: ApiSession, kind: AnyKind, name: str, within: str = ""
) -> Explanation:
    """The scheduler's answer about a pod.

    Raises:
        ApiError: no scheduler answers.
    """
    path = kind.path(opened.within(kind, within), name, "why")
    return codec.decode_view((await opened.fetch(Request("GET", path))).body, Explanation)


async def _programs(opened: ApiSession, document: Document, now: datetime) -> list[str]:
    state = readiness.ready(document)
    text = await _describe(opened, document, now)
    if state.done:
        return ["", f"Its programs: {text}{'.' if text == state.text else ''}"]
    warnings = await failures.latest_warnings(opened, document)
    lines = ["", f"Its programs: {text}", *generic.unmet_lines(document)]
    return lines + generic.warning_lines(warnings, now.timestamp())


async def _describe(opened: ApiSession, document: Document, now: datetime) -> str:
    """Whether the pod is ready, and the cause of what failed."""
    state = readiness.ready(document)
    if state.done:
        restarts = await failures.describe_restarts(opened, document, now)
        return f"{state.text} after {restarts}" if restarts else state.text
    cause = await failures.describe(opened, document)
    if state.failed:
        return cause if cause == state.text else f"failed: {cause}"
    return f"not ready: {cause}"
