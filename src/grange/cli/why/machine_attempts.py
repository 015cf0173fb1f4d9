"""The machines that a waiting pod or lease is to get: which, how far they are, and the last error of a boot."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from grange.api.explanation import Explanation, SchedulingState
from grange.api.fields import lookup
from grange.api.http import Request
from grange.api.kinds import EVENT, MACHINE, NODEPOOL
from grange.api.kinds.machine import (
    NODE_POOL_LABEL,
    PLANNED_LEASE_ANNOTATION,
    PLANNED_PODS_ANNOTATION,
    Machine,
)
from grange.api.kinds.nodepool import DEDICATED
from grange.api.machine_phases import MachinePhase
from grange.api.meta import Document
from grange.api.printing import cells
from grange.api.status import Forbidden, MethodNotAllowed, NotFound, ServiceUnavailable
from grange.cli import machine_board
from grange.cli.printers import events as printer
from grange.cli.session import ApiSession

_NO_MACHINE, _FAILED = "NoMachine", "MachineLaunchFailed"
_ENDED = MachinePhase.TERMINATED
_WAITING = {SchedulingState.ACTIVE, SchedulingState.BACKOFF, SchedulingState.UNSCHEDULABLE}
_NOT_SERVED = (NotFound, MethodNotAllowed, Forbidden)
_ENDING = {MachinePhase.TERMINATING, MachinePhase.TERMINATED}
_KEPT_MAX = 5


@dataclass(frozen=True, slots=True)
class MachineAttempts:
    """What is known of the machines of a waiting pod.

    Attributes:
        pool: the dedicated pool that it waits for; empty for none.
        lines: for the user; none for a pod with a node, or that no pool serves.
    """

    pool: str = ""
    lines: Sequence[str] = ()

    def applied(self, found: Explanation) -> Explanation:
        """The scheduler's answer, without its reasons where a machine of a dedicated pool is waited for.

        The scheduler sees the nodes of other pods' machines, and whatever it advises about them is wrong.
        """
        if not self.pool or found.state not in _WAITING:
            return found
        return replace(
            found,
            summary=f"waits for a machine of pool {self.pool}",
            hint="",
            until="",
            nodes=0,
            feasible=0,
            reasons=(),
            nearest=(),
            changes=(),
            choice=None,
            attempts=(),
        )


async def look(opened: ApiSession, pod: Document) -> MachineAttempts:
    """Read what is known of the machines of a pod, or of a MachineLease that waits."""
    if lookup(pod, "spec.nodeName"):
        return MachineAttempts()
    try:
        pools, machines = await opened.listed(NODEPOOL, ""), await opened.listed(MACHINE, "")
    except _NOT_SERVED:
        return MachineAttempts()  # a server without node pools, or a user who may not see them
    meta = pod["metadata"]
    fields = f"involvedObject.uid={meta.get('uid', '')}"
    events = await opened.listed(EVENT, meta.get("namespace") or "default", fields=fields)
    reasons = await _kept(opened, _named(pod), pools)
    shown = render(pod, pools, machines, events, opened.env.clock.now(), reasons)
    return MachineAttempts(dedicated_pool(pod, pools), shown)


async def _kept(opened: ApiSession, pool: str, pools: Sequence[Document]) -> Mapping[str, str]:
    """Why machines of a pool stay, by name, as the node controller has it; empty where none answers."""
    if pool not in {item["metadata"]["name"] for item in pools}:
        return {}
    try:
        response = await opened.fetch(Request("GET", NODEPOOL.path("", pool, "plan")))
    except (*_NOT_SERVED, ServiceUnavailable):
        return {}  # the records alone are shown
    decisions = json.loads(response.body)["decisions"]
    return {one["machine"]: one["reason"] for one in decisions if one["action"] == "keep"}


def dedicated_pool(pod: Document, pools: Sequence[Document]) -> str:
    """The dedicated pool that a pod names; empty where there is none."""
    named = _named(pod)
    dedicated = {
        item["metadata"]["name"] for item in pools if lookup(item, "spec.mode") == DEDICATED
    }
    return named if named in dedicated else ""


def render(
    pod: Document,
    pools: Sequence[Document],
    machines: Sequence[Document],
    events: Sequence[Document],
    now: datetime,
    reasons: Mapping[str, str] | None = None,
) -> list[str]:
    """The pool that it names, each machine that is meant for it, and why it has none.

    Args:
        pod: that waits; or a MachineLease.
        pools: all of the cluster.
        machines: all of the cluster.
        events: of the pod.
        now: wall time.
        reasons: why machines of the pool are kept, by name, as the node controller has it.
    """
    attempts = [item for item in machines if is_meant_for(item, pod)]
    last = {str(item.get("reason")): item for item in printer.in_order(events)}
    named = _named(pod)
    found = _pool(named, pools) if named else _unusable(pod, pools)
    unusable = bool(found) and not named
    for attempt in attempts:
        found += _attempt(attempt, now)
    if _FAILED in last:
        found.append(f"  last failed attempt: {_text(last[_FAILED], now)}")
    under_way = any(machine_board.view(item).phase is not _ENDED for item in attempts)
    if _NO_MACHINE in last and not under_way and not unusable:
        found.append(f"  no machine: {_text(last[_NO_MACHINE], now)}")
    found += _others(named, pod, machines, reasons or {}) if named else []
    title = "Its machines:" if lookup(pod, "spec.machines") else "Its machine:"
    return ["", title, *found] if found else []


def _named(pod: Document) -> str:
    return str((lookup(pod, "spec.nodeSelector") or {}).get(NODE_POOL_LABEL) or "")


def is_meant_for(machine: Document, pod: Document) -> bool:
    """Whether a machine is bound to a pod, or was ordered for it and others, or for a lease."""
    uid = pod["metadata"].get("uid")
    notes = machine["metadata"].get("annotations") or {}
    planned = [
        *notes.get(PLANNED_PODS_ANNOTATION, "").split(","),
        notes.get(PLANNED_LEASE_ANNOTATION),
    ]
    return bool(uid) and (lookup(machine, "status.boundPodUID") == uid or uid in planned)


def _pool(name: str, pools: Sequence[Document]) -> list[str]:
    """The pool that a pod names, and why it is not ready; its other conditions are about any pod."""
    found = [item for item in pools if item["metadata"]["name"] == name]
    if not found:
        known = ", ".join(sorted(str(item["metadata"]["name"]) for item in pools)) or "none"
        return [f"  pool {name} does not exist; there are: {known}"]
    wrong = _not_ready(found[0])
    shown = [f"    it is not ready: {wrong}"] if wrong else []
    return [f"  from pool {name} (provider {lookup(found[0], 'spec.provider')})", *shown]


def _unusable(pod: Document, pools: Sequence[Document]) -> list[str]:
    """Why no pool of shared machines can serve a pod that the scheduler finds no node for; none if one can."""
    conditions = lookup(pod, "status.conditions") or []
    if not any(item.get("reason") == "Unschedulable" for item in conditions):
        return []
    shared = [item for item in pools if lookup(item, "spec.mode") != DEDICATED]
    wrong = {str(item["metadata"]["name"]): _not_ready(item) for item in shared}
    if not wrong or not all(wrong.values()):
        return []
    return [
        "  no pool can be used:",
        *(f"    pool {name}: {why}" for name, why in sorted(wrong.items())),
    ]


def _not_ready(pool: Document) -> str:
    """Why a pool is not ready; empty if it is, or that is not known yet."""
    for item in lookup(pool, "status.conditions") or []:
        if item.get("type") == "Ready" and item.get("status") == "False":
            return f"{item.get('reason')}: {item.get('message')}"
    return ""


def _attempt(document: Document, now: datetime) -> list[str]:
    machine = machine_board.view(document)
    status = machine.status
    stage = f" ({status.stage})" if status.stage else ""
    since = cells.age_of(machine_board.phase_since(machine), now.timestamp())
    kind = status.instance_type or machine.spec.instance_type
    text = f"  machine {machine.metadata.name} ({kind}): {machine.phase.value}{stage} for {since}"
    if status.last_error:
        return [text, f"    last error of its boot: {status.last_error}"]
    if machine.phase in (MachinePhase.TERMINATING, _ENDED) and status.history:
        return [text, f"    {status.history[-1].reason}: {status.history[-1].message}"]
    return [text]


def _others(
    pool: str, pod: Document, machines: Sequence[Document], reasons: Mapping[str, str]
) -> list[str]:
    """The other machines of a pool, and what each is kept for."""
    lines = []
    for document in sorted(machines, key=lambda item: str(item["metadata"]["name"])):
        machine = machine_board.view(document)
        ends = machine.is_ending or machine.phase in _ENDING
        if machine.spec.pool != pool or ends or is_meant_for(document, pod):
            continue
        why, name = _kept_for(machine, reasons), machine.metadata.name
        if why:
            kind = machine.status.instance_type or machine.spec.instance_type
            lines.append(f"    {name} ({kind}), {machine.phase.value}: {why}")
    if not lines:
        return []
    more = len(lines) - _KEPT_MAX
    cut = [f"    and {more} more: grange machines plan --pool {pool}"] if more > 0 else []
    return ["  kept for something else:", *lines[:_KEPT_MAX], *cut]


def _kept_for(machine: Machine, reasons: Mapping[str, str]) -> str:
    status = machine.status
    if status.holder:
        return f"held by {status.holder}"
    if status.bound_pod_name:
        verb = "claimed by" if machine.phase is MachinePhase.CLAIMED else "meant for"
        return f"{verb} pod {status.bound_pod_name}"
    return reasons.get(machine.metadata.name, "")


def _text(event: Document, now: datetime) -> str:
    seen = printer.last_seen(event)
    ago = f" ({cells.age_of(seen.isoformat(), now.timestamp())} ago)" if seen else ""
    return f"{event.get('message')}{ago}"
