"""``grange rc status``: a controller, its rollout and its pods on one page."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import click

from grange.api.codec import convert
from grange.api.farm_protocol import OWNER_ANNOTATION
from grange.api.fields import lookup
from grange.api.kinds import POD
from grange.api.kinds.replicationcontroller import NAME_LABEL
from grange.api.kinds.transfer_status import TRANSFER_LOCK, drained_nodes
from grange.api.meta import Document, Resource
from grange.api.names import label_value
from grange.api.printing import cells, pods
from grange.api.replication import PROTECT_ANNOTATION, BadIntent, transfer_of
from grange.api.status import Forbidden
from grange.cli import farm_members, options, readiness, session, terminal
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.farm_members import FarmMember
from grange.cli.printers import documents, table
from grange.cli.verbs.rc import objects, rolling_updates
from grange.client import locks

_HASH = "grange.dev/template-hash"


@click.command(cls=Command, examples=("grange rc status web",))
@click.argument("name", type=objects.CONTROLLER)
@options.output(documents.REPORT)
@options.connected
def command(env: Environment, target: session.ClusterTarget, name: str, output: str) -> None:
    """Show NAME: counts, who owns it, conditions, its rollout, and its pods."""

    async def verb(opened: session.ApiSession) -> int:
        if output:
            found = await objects.document(opened, name)
            facts = {
                "status": found.get("status") or {},
                "owner": owner(found, await _members(opened)),
            }
            terminal.write(documents.report(output, facts))
        else:
            terminal.echo("\n".join(await page(opened, name)))
        return 0

    session.run(env, target, verb)


async def page(opened: session.ApiSession, name: str) -> list[str]:
    """The status page of a controller, line by line.

    Raises:
        NotFound: there is none of the name.
    """
    found = await objects.document(opened, name)
    there = await opened.listed(POD)
    own, orphans = belonging(found, there)
    now = opened.env.clock.now()
    facts = summary(found, now=now, members=await _members(opened), orphans=orphans)
    if (update := await rolling_updates.under_way(opened, name)) is not None:
        facts["Replicas move"] = rolling_updates.describe(update)
    width = max(len(key) for key in facts) + 2
    lines = [f"{key + ':':<{width}}{value}" for key, value in facts.items()]
    return [*lines, "", *conditions(found), *_pods(own, now.timestamp())]


def belonging(
    found: Document, there: Iterable[Document]
) -> tuple[list[Document], Sequence[Document]]:
    """The controller's pods, and those without any controller that it should adopt.

    Owner references decide, because any user may change labels of pods.
    """
    meta = found["metadata"]
    mark = label_value(str(meta["name"]))
    own, orphans = [], []
    for pod in there:
        references = pod["metadata"].get("ownerReferences") or ()
        uids = [item.get("uid") for item in references if item.get("controller")]
        labels = pod["metadata"].get("labels") or {}
        if meta["uid"] in uids:
            own.append(pod)
        elif not uids and labels.get(NAME_LABEL) == mark and _stays(pod):
            orphans.append(pod)
    return own, orphans


def _stays(pod: Document) -> bool:
    ended = lookup(pod, "status.phase") in {"Succeeded", "Failed"}
    return not ended and not readiness.is_terminating(pod)


async def _members(opened: session.ApiSession) -> list[FarmMember] | None:
    """The members of the farm; None where they may not be seen."""
    try:
        return await farm_members.listed(opened, opened.env.clock.now())
    except Forbidden:
        return None


def owner(found: Document, members: Iterable[FarmMember] | None) -> str:
    """The member of the farm that works on it; empty for none.

    A session that is over leaves its name on objects, where it means nothing.
    """
    claim = _claimed(found)
    alive = members is None or any(member.session == claim for member in members)
    return _name(claim) if alive else ""


def _claimed(found: Document) -> str:
    """The session that was the last to claim it."""
    return str((found["metadata"].get("annotations") or {}).get(OWNER_ANNOTATION) or "")


def _name(claim: str) -> str:
    return claim.rpartition("/")[0].rpartition("_")[0]


def _owner(found: Document, members: Sequence[FarmMember] | None) -> str:
    claim = _claimed(found)
    name = owner(found, members)
    if not name:
        return f"none ({_name(claim)} has left)" if claim else "none"
    silent = [item for item in members or () if item.session == claim and item.state == "Silent"]
    return f"{name}, silent for {silent[0].silent_s:.0f} s" if silent else name


def summary(
    found: Document,
    *,
    now: datetime,
    members: Sequence[FarmMember] | None = None,
    orphans: Sequence[Document] = (),
) -> dict[str, str]:
    """Facts by their names.

    Args:
        found: the controller in full.
        now: wall time.
        members: the members of the farm; None where they may not be seen.
        orphans: pods that it should adopt.
    """
    spec, status = found.get("spec") or {}, found.get("status") or {}
    notes = found["metadata"].get("annotations") or {}
    counts = [
        f"{spec.get('replicas', 0)} wanted",
        f"{status.get('replicas', 0)} there",
        f"{status.get('readyReplicas', 0)} ready",
        f"{status.get('updatedReplicas', 0)} of the present template",
    ]
    facts = {
        "Name": found["metadata"]["name"],
        "State": readiness.ready(found).text + (", disabled" if spec.get("paused") else ""),
        "Replicas": ", ".join(counts),
        "Placement": f"{spec.get('placement', 'OnePerNode')}, {spec.get('strategy', 'Static')}",
        "Owner": _owner(found, members),
        "Protected": "while it asks for replicas" if PROTECT_ANNOTATION in notes else "no",
        "Rollout": _rollout(status.get("rollout")),
        "Node transfers": "; ".join(map(_transfer, status.get("nodeTransfers") or ())) or "none",
    }
    controller = convert({"metadata": found["metadata"]}, Resource)
    if (held := locks.hold(controller, TRANSFER_LOCK, now)) is not None:
        facts["Transfers locked"] = f"by {held}"
    if drained := drained_nodes(controller):
        facts["Drained nodes"] = ", ".join(sorted(drained))
    if orphans:
        facts["Not adopted"] = ", ".join(str(pod["metadata"]["name"]) for pod in orphans)
    if order := _order(controller):
        facts["Replicas on their way"] = order
    return facts


def _order(giver: Resource) -> str:
    """The transfer of replicas that is under way; one that was given up goes nowhere."""
    try:
        order = transfer_of(giver)
    except BadIntent as error:
        return str(error)
    if order is None or order.refused:
        return ""
    return f"{order.add} more for {order.to}, then {order.remove} fewer here ({order.id})"


def _rollout(state: Any) -> str:
    if not isinstance(state, dict):
        return "none"
    text = f"{state.get('phase', '')}, revision {state.get('revision', 0)}"
    return f"{text}: {state['message']}" if state.get("message") else text


def _transfer(state: dict[str, Any]) -> str:
    goal = state.get("new") or "a node to be found"
    text = (
        f"{state.get('oldPod', '')} from {state.get('old', '')} to {goal}, {state.get('phase', '')}"
    )
    return f"{text}: {state['reason']}" if state.get("reason") else text


def conditions(found: Document) -> list[str]:
    """The conditions as a table."""
    listed = lookup(found, "status.conditions") or []
    rows = [
        [str(item.get(key, "")) for key in ("type", "status", "reason", "message")]
        for item in listed
    ]
    if not rows:
        return ["No conditions yet: no controller has looked at it."]
    return table.render([["CONDITION", "STATUS", "REASON", "MESSAGE"], *rows])


def _pods(own: list[Document], now: float) -> list[str]:
    if not own:
        return []
    rows = [
        [
            str(pod["metadata"]["name"]),
            str(pods.ready(pod, now)),
            str(pods.status(pod, now)),
            str(lookup(pod, "spec.nodeName") or "<none>"),
            str((pod["metadata"].get("labels") or {}).get(_HASH, "")),
            cells.age_of(pod["metadata"].get("creationTimestamp"), now),
        ]
        for pod in own
    ]
    return ["", *table.render([["POD", "READY", "STATUS", "NODE", "TEMPLATE", "AGE"], *rows])]
