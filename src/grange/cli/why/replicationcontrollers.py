"""Explains a ReplicationController: its conditions, and which of its pods wait for what."""

from grange.api import explanation
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.cli import failures, readiness
from grange.cli.session import ApiSession
from grange.cli.why import generic, owned_pods
from grange.cli.why.answer import WhyAnswer


async def ask(opened: ApiSession, kind: AnyKind, name: str) -> WhyAnswer:
    """Its own conditions first, then the causes of the pods that are not ready."""
    document = await opened.document(kind, name)
    now = opened.env.clock.now()
    state = readiness.ready(document)
    lines = [f"{kind.singular}/{name}: {state.text}"]
    lines += [*unseen_lines(document), *waiting_lines(document), *generic.unmet_lines(document)]
    causes, answers = await owned_pods.explain(opened, document)
    lines += causes
    warnings = await failures.latest_warnings(opened, document)
    lines += generic.warning_lines(warnings, now.timestamp())
    if len(lines) == 1:
        lines.append("Nothing waits.")
    whole: Document = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [explanation.document(found) for _, found in answers],
    }
    return WhyAnswer(whole, lines)


def unseen_lines(document: Document) -> list[str]:
    """A line if no controller has observed its present spec."""
    seen = (document.get("status") or {}).get("observedGeneration") or 0
    if seen >= (document["metadata"].get("generation") or 0):
        return []
    return ["No controller has observed its present spec; grange farm status shows which run."]


def waiting_lines(document: Document) -> list[str]:
    """A line if its rollout waits for the user: no condition names the command to resume it."""
    state = (document.get("status") or {}).get("rollout") or {}
    if state.get("phase") == "Waiting":
        return [f"Its rollout waits: {readiness.at_canaries('spec.rollout.canary')}."]
    if state.get("phase") == "Paused" and not (document.get("spec") or {}).get("paused"):
        name = document["metadata"]["name"]
        return [f"Its rollout is paused; grange rc rollout resume {name} resumes it."]
    return []
