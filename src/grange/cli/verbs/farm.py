"""``grange farm``: the processes that run controllers, and deletions that they hold back."""

import contextlib
import re
from collections import Counter

import click

from grange.api import farm_protocol, http, timestamps
from grange.api.codec import decode_document, encode
from grange.api.http import Request
from grange.api.kinds import CONFIGMAP, LEASE, REPLICATIONCONTROLLER
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import AlreadyExists, NotFound
from grange.cli import farm_members, options, session, terminal
from grange.cli.command import Group
from grange.cli.confirm import confirm
from grange.cli.environment import Environment
from grange.cli.farm_members import FarmMember
from grange.cli.printers import documents, table
from grange.cli.results import Results

_SHARED: tuple[tuple[str, AnyKind, str], ...] = (
    ("replication", REPLICATIONCONTROLLER, ""),
    ("services", LEASE, farm_protocol.SERVICE_LABEL),
)
_UNOWNED = "unowned"


@click.group("farm", cls=Group)
def command() -> None:
    """The processes that share the controllers' work."""


@command.command("status", examples=("grange farm status",))
@options.output(("wide", *documents.REPORT))
@options.connected
def status(env: Environment, target: session.ClusterTarget, output: str) -> None:
    """Show the members, the objects that each owns, objects without owner, and alerts."""

    async def verb(opened: session.ApiSession) -> int:
        found = await farm_members.listed(opened, env.clock.now())
        unowned = await _count(opened, found)
        if documents.is_document_format(output):
            terminal.write(documents.report(output, _document(found, unowned)))
        else:
            _show(found, unowned, wide=output == "wide")
        return 0

    session.run(env, target, verb)


@command.command("resume", examples=("grange farm resume",))
@options.YES
@options.output(documents.OBJECT)
@options.connected
def resume(env: Environment, target: session.ClusterTarget, *, yes: bool, output: str) -> None:
    """Let deletions go on that the deletion guard holds back.

    Use it when you have checked that the deletions are right. It holds for ten minutes.
    """

    async def verb(opened: session.ApiSession) -> int:
        confirm("Let deletions that the deletion guard holds back go on for ten minutes?", yes=yes)
        annotation = {farm_protocol.RESUME_ANNOTATION: env.rng.suffix(10)}
        patch = {"metadata": {"annotations": annotation}}
        path = CONFIGMAP.path(farm_protocol.NAMESPACE, farm_protocol.RESUME_CONFIGMAP)
        try:
            found = await _write(opened, "PATCH", path, http.MERGE_PATCH, patch)
        except NotFound:
            fresh = {"metadata": {"name": farm_protocol.RESUME_CONFIGMAP, "annotations": {}}}
            root = CONFIGMAP.path(farm_protocol.NAMESPACE)
            with contextlib.suppress(AlreadyExists):
                await _write(opened, "POST", root, http.JSON, fresh)
            found = await _write(opened, "PATCH", path, http.MERGE_PATCH, patch)
        results = Results(output)
        results.add(CONFIGMAP, found, "deletions go on for ten minutes")
        results.end()
        return 0

    session.run(env, target, verb)


async def _write(
    opened: session.ApiSession, method: str, path: str, content_type: str, body: Document
) -> Document:
    headers = {"content-type": content_type}
    answer = await opened.fetch(Request(method, path, headers=headers, body=encode(body)))
    return decode_document(answer.body)


async def _count(opened: session.ApiSession, members: list[FarmMember]) -> Counter[str]:
    """Count who owns what; what no session owns is returned by farm."""
    sessions = {member.session: member for member in members if member.session}
    unowned: Counter[str] = Counter()
    for name, kind, label in _SHARED:
        query = {"labelSelector": label} if label else {}
        request = Request("GET", kind.path(), query=query, headers={"accept": http.METADATA_LIST})
        for item in decode_document((await opened.fetch(request)).body).get("items") or []:
            claim = (item["metadata"].get("annotations") or {}).get(
                farm_protocol.OWNER_ANNOTATION, ""
            )
            owner = sessions.get(claim)
            (owner.owns if owner is not None else unowned)[name] += 1
    return unowned


def _document(members: list[FarmMember], unowned: Counter[str]) -> Document:
    return {
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
        "unowned": {name: unowned[name] for name, _, _ in _SHARED},
    }


def _show(members: list[FarmMember], unowned: Counter[str], *, wide: bool = False) -> None:
    if not members:
        terminal.echo("No controllers run; start them with `grange up` or `grange controllers`.")
        return
    names = [name for name, _, _ in _SHARED]
    rows = [["MEMBER", "STATE", "RENEWED", *(name.upper() for name in names), "ALERTS"]]
    rows[0] += ["SESSION"] if wide else []
    for member in members:
        owned = [str(member.owns[name]) for name in names]
        seen = timestamps.age(max(0.0, member.silent_s))
        rows.append([member.name, member.state, seen, *owned, str(len(member.alerts))])
        rows[-1] += [member.session] if wide else []
    if unowned.total():
        rows.append([_UNOWNED, "", "", *(str(unowned[name]) for name in names), ""])
    terminal.echo("\n".join(table.render(rows)))
    alerts = [
        [str(alert.get(key, "")) for key in ("urgency", "about", "reason", "message")]
        for member in members
        if member.state == "Active"
        for alert in member.alerts
    ]
    if alerts:
        terminal.echo()
        heading = ["URGENCY", "ABOUT", "REASON", "MESSAGE"]
        terminal.echo("\n".join(table.render([heading, *_distinct(alerts)])))


def _distinct(rows: list[list[str]]) -> list[list[str]]:
    """Several members may report the same alert."""
    return [
        list(row) for row in dict.fromkeys(tuple(re.sub(r"\s+", " ", c) for c in r) for r in rows)
    ]
