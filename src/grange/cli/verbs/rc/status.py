"""``grange rc status``: how a controller and its pods are, on one page."""

from typing import Any

import click
import msgspec

from grange.api.farm import OWNER_ANNOTATION
from grange.api.fields import lookup
from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.meta import Document
from grange.api.printing import cells, pods
from grange.api.replication import PROTECT_ANNOTATION, TRANSFER_ANNOTATION
from grange.cli import listing, readiness, session
from grange.cli.printers import table
from grange.cli.surroundings import Surroundings
from grange.cli.verbs.rc import objects

_HASH = "grange.dev/template-hash"


@click.command()
@click.argument("name")
@click.option("-o", "--output", type=click.Choice(["json"]), default=None, help="As a document.")
@session.connected
def command(around: Surroundings, target: session.Target, name: str, output: str | None) -> None:
    """Show NAME: counts, who owns it, conditions, its rollout, and its pods."""

    async def verb(opened: session.Session) -> int:
        found = await objects.document(opened, name)
        scale = REPLICATIONCONTROLLER.scale
        selector = scale.selector(found) if scale is not None else ""
        own = await listing.listed(opened, POD, selector=selector)
        now = around.clock.now().timestamp()
        if output:
            facts = {"status": found.get("status") or {}, "owner": owner(found)}
            click.echo(msgspec.json.format(msgspec.json.encode(facts), indent=4).decode())
        else:
            click.echo("\n".join([*summary(found), "", *conditions(found), *_pods(own, now)]))
        return 0

    session.run(around, target, verb)


def owner(found: Document) -> str:
    """The member of the farm that works on it; empty for nobody."""
    said = str((found["metadata"].get("annotations") or {}).get(OWNER_ANNOTATION) or "")
    return said.rpartition("/")[0].rpartition("_")[0]


def summary(found: Document) -> list[str]:
    """Names and values, one a line."""
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
        "Owner": owner(found) or "nobody",
        "Protected": "while it asks for replicas" if PROTECT_ANNOTATION in notes else "no",
        "Rollout": _rollout(status.get("rollout")),
        "Node transfers": "; ".join(map(_transfer, status.get("nodeTransfers") or ())) or "none",
    }
    if TRANSFER_ANNOTATION in notes:
        facts["Replicas on their way"] = str(notes[TRANSFER_ANNOTATION])
    width = max(len(key) for key in facts) + 2
    return [f"{key + ':':<{width}}{value}" for key, value in facts.items()]


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
    said = lookup(found, "status.conditions") or []
    rows = [
        [str(item.get(key, "")) for key in ("type", "status", "reason", "message")] for item in said
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
