"""``grange farm``: who works for the cluster, what holds deletions back, and the word to go on."""

import contextlib
import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import click
import msgspec

from grange.api import farm, timestamps, wire
from grange.api.codec import decode_document, encode
from grange.api.kinds import CONFIGMAP, LEASE, REPLICATIONCONTROLLER
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import AlreadyExists, NotFound
from grange.api.wire import Request
from grange.cli import session
from grange.cli.confirm import confirm
from grange.cli.printers import table
from grange.cli.surroundings import Surroundings

_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_SHARED: tuple[tuple[str, AnyKind, str], ...] = (
    ("replication", REPLICATIONCONTROLLER, ""),
    ("services", LEASE, farm.SERVICE_LABEL),
)
_NOBODY = "nobody"


@click.group("farm")
def command() -> None:
    """The members that share the controllers' work."""


@dataclass
class Member:
    """One member, from its Lease.

    Attributes:
        name: its name; without a session it has only its Lease left.
        session: identity of its session; empty when it has none.
        term_s: after so long without a renewal others end its session.
        silent_s: seconds since its last renewal, by this machine's clock.
        alerts: what troubles it.
        owns: how many objects name its session, by farm.
    """

    name: str
    session: str
    term_s: int
    silent_s: float
    alerts: list[dict[str, Any]]
    owns: Counter[str] = field(default_factory=Counter)

    @property
    def state(self) -> str:
        """In one word."""
        if not self.session:
            return "Left"
        return "Active" if self.silent_s <= self.term_s else "Silent"


@command.command("status")
@click.option("-o", "--output", type=click.Choice(["json"]), default=None, help="As a document.")
@session.connected
def status(around: Surroundings, target: session.Target, output: str | None) -> None:
    """Members, what each owns, what nobody owns, and alerts."""

    async def verb(opened: session.Session) -> int:
        members = await _members(opened, around.clock.now())
        homeless = await _count(opened, members)
        if output:
            click.echo(_document(members, homeless).decode())
        else:
            _show(members, homeless)
        return 0

    session.run(around, target, verb)


@command.command("resume")
@click.option("-y", "--yes", is_flag=True, help="Do it without asking.")
@session.connected
def resume(around: Surroundings, target: session.Target, *, yes: bool) -> None:
    """Let deletions go on that the failsafe holds back.

    That is your word that all is well; it holds for ten minutes.
    """

    async def verb(opened: session.Session) -> int:
        confirm("Let deletions that the failsafe holds back go on for ten minutes?", yes=yes)
        word = {farm.RESUME_ANNOTATION: around.rng.suffix(10)}
        patch = {"metadata": {"annotations": word}}
        path = CONFIGMAP.path(farm.NAMESPACE, farm.RESUME_CONFIGMAP)
        try:
            await _write(opened, "PATCH", path, wire.MERGE_PATCH, patch)
        except NotFound:
            fresh = {"metadata": {"name": farm.RESUME_CONFIGMAP, "annotations": {}}}
            root = CONFIGMAP.path(farm.NAMESPACE)
            with contextlib.suppress(AlreadyExists):
                await _write(opened, "POST", root, wire.JSON, fresh)
            await _write(opened, "PATCH", path, wire.MERGE_PATCH, patch)
        click.echo("deletions go on for ten minutes, whatever the view looks like")
        return 0

    session.run(around, target, verb)


async def _write(
    opened: session.Session, method: str, path: str, content_type: str, body: Document
) -> None:
    headers = {"content-type": content_type}
    await opened.fetch(Request(method, path, headers=headers, body=encode(body)))


async def _members(opened: session.Session, now: datetime) -> list[Member]:
    query = {"labelSelector": farm.GROUP_LABEL}
    request = Request("GET", LEASE.path(farm.NAMESPACE), query=query)
    items = decode_document((await opened.fetch(request)).body).get("items") or []
    return [_member(item, now) for item in items]


def _member(lease: Document, now: datetime) -> Member:
    meta, spec = lease["metadata"], lease.get("spec") or {}
    holder = str(spec.get("holderIdentity") or "")
    group = str(meta["labels"][farm.GROUP_LABEL])
    renewed = spec.get("renewTime")
    return Member(
        name=holder.rpartition("_")[0] or str(meta["name"]).removeprefix(f"{group}-"),
        session=f"{holder}/{spec.get('leaseTransitions') or 0}" if holder else "",
        term_s=int(spec.get("leaseDurationSeconds") or 0),
        silent_s=(now - timestamps.parse(renewed)).total_seconds() if renewed else 0.0,
        alerts=_alerts((meta.get("annotations") or {}).get(farm.REPORT_ANNOTATION, "")),
    )


def _alerts(report: str) -> list[dict[str, Any]]:
    try:
        said = msgspec.json.decode(report or "{}", type=dict[str, Any])
        return msgspec.convert(said.get("alerts") or [], list[dict[str, Any]])
    except msgspec.MsgspecError:
        return []  # somebody's hand: the member's next renewal puts it right


async def _count(opened: session.Session, members: list[Member]) -> Counter[str]:
    """Count who owns what; what no session owns is returned by farm."""
    sessions = {member.session: member for member in members if member.session}
    homeless: Counter[str] = Counter()
    for name, kind, label in _SHARED:
        query = {"labelSelector": label} if label else {}
        request = Request("GET", kind.path(), query=query, headers={"accept": _METADATA})
        for item in decode_document((await opened.fetch(request)).body).get("items") or []:
            said = (item["metadata"].get("annotations") or {}).get(farm.OWNER_ANNOTATION, "")
            owner = sessions.get(said)
            (owner.owns if owner is not None else homeless)[name] += 1
    return homeless


def _document(members: list[Member], homeless: Counter[str]) -> bytes:
    document = {
        "members": [
            {
                "name": member.name,
                "state": member.state,
                "session": member.session,
                "owns": {name: member.owns[name] for name, _, _ in _SHARED},
                "alerts": member.alerts,
            }
            for member in members
        ],
        "unowned": {name: homeless[name] for name, _, _ in _SHARED},
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=4)


def _show(members: list[Member], homeless: Counter[str]) -> None:
    if not members:
        click.echo("No member takes part: start one with `grange up` or `grange controllers`.")
        return
    names = [name for name, _, _ in _SHARED]
    rows = [["MEMBER", "STATE", "RENEWED", *(name.upper() for name in names), "ALERTS"]]
    for member in members:
        owned = [str(member.owns[name]) for name in names]
        seen = timestamps.age(max(0.0, member.silent_s))
        rows.append([member.name, member.state, seen, *owned, str(len(member.alerts))])
    if homeless.total():
        rows.append([_NOBODY, "", "", *(str(homeless[name]) for name in names), ""])
    click.echo("\n".join(table.render(rows)))
    told = [
        [str(alert.get(key, "")) for key in ("urgency", "about", "reason", "message")]
        for member in members
        if member.state == "Active"
        for alert in member.alerts
    ]
    if told:
        click.echo()
        heading = ["URGENCY", "ABOUT", "REASON", "MESSAGE"]
        click.echo("\n".join(table.render([heading, *_distinct(told)])))


def _distinct(rows: list[list[str]]) -> list[list[str]]:
    """Several members may tell of one thing."""
    return [
        list(row) for row in dict.fromkeys(tuple(re.sub(r"\s+", " ", c) for c in r) for r in rows)
    ]
