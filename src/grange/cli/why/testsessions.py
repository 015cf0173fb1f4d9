"""Explains a test session from the outside in: its lease, then the components that are not ready."""

from grange.api import explanation
from grange.api.kinds import MACHINELEASE, NODE
from grange.api.kinds.machinelease import (
    HOLDER_ANNOTATION,
    MACHINE_LEASE,
    POOL_LABEL,
    QUEUED,
    MachineLease,
)
from grange.api.kinds.testsession import TestSession
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import ApiError, NotFound
from grange.cli import failures, readiness, testsession_board, testsession_view
from grange.cli.machineleases import pool_counts
from grange.cli.machineleases.pool_counts import PoolCounts
from grange.cli.printers import table
from grange.cli.session import ApiSession
from grange.cli.why import generic, machine_attempts, owned_pods
from grange.cli.why.answer import WhyAnswer

_BEFORE = 5  # leases that are first in the queue, as far as they are shown


async def ask(opened: ApiSession, kind: AnyKind, name: str) -> WhyAnswer:
    """Its phase, what its lease waits for, and why components are not ready or failed."""
    document = await opened.document(kind, name)
    document = {"kind": kind.kind, **document}
    shown = testsession_view.view(document)
    lines = [f"{kind.singular}/{name}: {readiness.ready(document).text}"]
    answers: owned_pods.Answers = []
    if not testsession_view.is_finished(shown):
        lines += await _lease(opened, shown)
        causes, answers = await owned_pods.explain(opened, document)
        lines += causes
    lines += component_lines(shown)
    now = opened.env.clock.now().timestamp()
    lines += generic.warning_lines(await failures.latest_warnings(opened, document), now)
    if len(lines) == 1:
        lines.append("Nothing waits.")
    items = [explanation.document(found) for _, found in answers]
    whole: Document = {"apiVersion": "v1", "kind": "List", "items": [document, *items]}
    return WhyAnswer(whole, lines)


def component_lines(session: TestSession) -> list[str]:
    """The components that explain a bad end, or that are not ready yet."""
    found = testsession_view.failing(session)
    rows = [
        [
            item.name,
            item.node or "<none>",
            item.health or "Unknown",
            testsession_board.component_message(item),
        ]
        for item in found
    ]
    return ["", "Components:", *("  " + line for line in table.render(rows))] if rows else []


async def lease_lines(opened: ApiSession, name: str, namespace: str) -> list[str]:
    """What a lease waits for: its position, the pools with their holders, who is before it, and machines for it."""
    try:
        document = await opened.document(MACHINELEASE, name, namespace)
    except NotFound:
        return ["", f"Lease ml/{name}: it does not exist yet"]
    text = readiness.ready({"kind": MACHINELEASE.kind, **document}).text
    lines = ["", f"Lease ml/{name}: {text}"]
    lease = await opened.client.get(MACHINELEASE, name, namespace)
    if (lease.status.phase or QUEUED) != QUEUED:
        return lines
    if lease.status.position:
        waiting = f"  position {lease.status.position} in the queue"
        if lease.status.expected_start:
            waiting += f", expected to start at {lease.status.expected_start}"
        lines.append(waiting)
    for request in lease.spec.machines:
        lines += await _pool_lines(opened, request.pool, request.count)
    lines += await _earlier(opened, lease)
    return [*lines, *(await machine_attempts.look(opened, document)).lines]


async def _lease(opened: ApiSession, session: TestSession) -> list[str]:
    if not session.status.lease:
        return []
    try:
        return await lease_lines(opened, session.status.lease, session.metadata.namespace)
    except ApiError as error:  # the user may not read leases or nodes
        return ["", f"Lease ml/{session.status.lease}: {error.message}"]


async def _pool_lines(opened: ApiSession, pool: str, count: int) -> list[str]:
    nodes = (await opened.client.list(NODE, labels=f"{POOL_LABEL}={pool}")).items
    pods = await pool_counts.keepers(opened, nodes)
    found = PoolCounts(pool)
    holders: dict[str, int] = {}
    for node in nodes:
        meta = node.metadata
        found.add(node, (pods or {}).get(meta.name, ""))
        if MACHINE_LEASE in meta.labels:
            holder = meta.annotations.get(HOLDER_ANNOTATION) or "unknown"
            holders[holder] = holders.get(holder, 0) + 1
    lines = [f"  pool {pool}: {count} wanted, {found.free} of {found.nodes} free"]
    lines += [f"    {number} held by {holder}" for holder, number in holders.items()]
    if found.dirty:
        lines.append(f"    {found.dirty} of these are released and not clean yet")
    if found.busy:
        lines.append(f"    {pool_counts.busy_text(found)}")
    if found.unusable:
        lines.append(f"    {found.unusable} cordoned, not ready or about to be taken away")
    if pods is None:
        lines.append(f"    {pool_counts.PODS_UNREAD}")
    return lines


async def _earlier(opened: ApiSession, lease: MachineLease) -> list[str]:
    """Who is before it in the queue, the first ones."""
    found = [
        item
        for item in (await opened.client.list(MACHINELEASE)).items
        if 0 < item.status.position < lease.status.position
    ]
    found.sort(key=lambda item: item.status.position)
    lines = []
    for item in found[:_BEFORE]:
        asked = ", ".join(f"{need.count} of {need.pool}" for need in item.spec.machines)
        holder = item.spec.holder
        who = f"{holder.kind} {holder.name}".strip() or f"ml/{item.metadata.name}"
        lines.append(f"    {item.status.position}. {item.metadata.namespace}: {who} ({asked})")
    if len(found) > _BEFORE:
        lines.append(f"    and {len(found) - _BEFORE} more")
    return ["  before it:", *lines] if lines else []
