"""A pod: what its scheduler says, and once it has a node, what its programs say."""

from grange.api import codec, explanation as wire
from grange.api.explanation import Explanation, State
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import Forbidden, MethodNotAllowed, NotFound, ServiceUnavailable
from grange.api.wire import Request
from grange.cli import failures, readiness
from grange.cli.printers import explanation as printer
from grange.cli.session import Session
from grange.cli.why import anything
from grange.cli.why.answer import Answer

# A server of Kubernetes does not know the path, and refuses it already for that reason to most people.
_NOBODY = (NotFound, MethodNotAllowed, ServiceUnavailable, Forbidden)


async def ask(opened: Session, kind: AnyKind, name: str) -> Answer:
    """Ask the scheduler; where none answers, say so and what the pod itself tells."""
    document = await opened.document(kind, name)
    now = opened.around.clock.now()
    try:
        found = await explanation(opened, kind, name)
    except _NOBODY as error:
        fallback = await anything.ask(opened, kind, name)
        note = f"(No scheduler answers: {error.message})"
        return Answer(document, [*fallback.lines, "", note])
    lines = printer.render(f"pod/{name}", found, now=now)
    if found.state is State.PLACED:
        lines += await _programs(opened, document, now.timestamp())
    return Answer(wire.document(found), lines)


async def explanation(opened: Session, kind: AnyKind, name: str, within: str = "") -> Explanation:
    """The scheduler's answer about a pod.

    Raises:
        ApiError: nobody answers.
    """
    path = kind.path(opened.within(kind, within), name, "why")
    return codec.decode_view((await opened.fetch(Request("GET", path))).body, Explanation)


async def _programs(opened: Session, document: Document, now: float) -> list[str]:
    state = readiness.ready(document)
    if state.done:
        return ["", f"Its programs: {state.text}."]
    warnings = await failures.latest_warnings(opened, document)
    lines = ["", f"Its programs: not ready: {await failures.describe(opened, document)}"]
    return lines + anything.unmet_lines(document) + anything.warning_lines(warnings, now)
