"""Explains a job from the outside in: queue, gang, nodes, and the containers of its pods."""

from grange.api import explanation
from grange.api.fields import lookup
from grange.api.job_status import SUSPENDED
from grange.api.kinds import PODGROUP, QUEUE
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import ApiError, NotFound
from grange.cli import failures, job_view, readiness
from grange.cli.session import ApiSession
from grange.cli.why import generic, owned_pods
from grange.cli.why.answer import WhyAnswer


async def ask(opened: ApiSession, kind: AnyKind, name: str) -> WhyAnswer:
    """Its phase, what its gang waits for, and the causes of pods that are not ready."""
    document = await opened.document(kind, name)
    job = job_view.view(document)
    now = opened.env.clock.now().timestamp()
    lines = [f"{kind.singular}/{name}: {readiness.ready(document).text}"]
    if job.phase == SUSPENDED:
        lines.append(f"What to do: grange job resume {name}.")
    stated: list[str] = []  # messages of its gang: its pods would repeat them
    if not job.is_finished:
        of_gang, stated = await _gang(opened, job, lines[0])
        lines += of_gang
    causes, answers = await owned_pods.explain(opened, document)
    for message in stated:
        causes = [line.replace(f" ({message})", "") for line in causes]
    lines += causes
    lines += generic.warning_lines(await failures.latest_warnings(opened, document), now)
    if len(lines) == 1:
        lines.append("Nothing waits.")
    items = [explanation.document(found) for _, found in answers]
    whole: Document = {"apiVersion": "v1", "kind": "List", "items": [document, *items]}
    return WhyAnswer(whole, lines)


async def _gang(
    opened: ApiSession, job: job_view.JobView, heading: str
) -> tuple[list[str], list[str]]:
    """Its queue and its gang, without messages that the heading has; and the messages of the gang."""
    lines: list[str] = []
    stated: list[str] = []
    if job.queue:
        own = f"; this job uses {job.quota_used}" if job.quota_used else ""
        lines += ["", f"Queue {job.queue}: {await _queue(opened, job.queue)}{own}"]
    try:
        groups = await opened.listed(PODGROUP, job.namespace)
    except ApiError:  # a cluster without Grange's scheduler; its own group has its own conditions
        return lines, stated
    for found in groups:
        if job_view.is_member(found, job.uid):
            phase = str(lookup(found, "status.phase") or "Pending")
            lines += ["", f"Gang {found['metadata']['name']}: {phase}"]
            unmet = [item for item in failures.unmet(found) if item.get("message")]
            stated += [str(item["message"]) for item in unmet]
            lines += [
                f"  {item.get('type')}={item.get('status')}  {item.get('reason')}  {item['message']}"
                for item in unmet
                if item["message"] not in heading
            ]
    return lines, stated


async def _queue(opened: ApiSession, name: str) -> str:
    try:
        found = await opened.document(QUEUE, name)
    except NotFound:
        return "does not exist; create it, or name another one in schedulingPolicy.queue"
    except ApiError as error:
        return error.message
    used = lookup(found, "status.used") or {}
    limits = lookup(found, "spec.capacity") or {}
    parts = [f"{used.get(key, 0)} of {limit} {key}" for key, limit in limits.items()]
    text = f"{', '.join(parts)} in use" if parts else "without a limit"
    waiting = lookup(found, "status.pending") or 0
    return f"{text}, {waiting} waiting" if waiting else text
