"""``grange job suspend``, ``resume``, ``restart`` and ``scale``."""

from typing import Any

import click

from grange.api import http, minimum_attempts
from grange.api.codec import decode_document, encode
from grange.api.http import Request
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import Conflict
from grange.cli import job_lookup, job_view, options, session
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.printers import documents
from grange.cli.results import Results

_ATTEMPTS = 5


@click.command(cls=Command, examples=("grange job suspend train",))
@job_lookup.NAMES
@options.output(documents.OBJECT)
@options.connected
def suspend(
    env: Environment, target: session.ClusterTarget, names: tuple[str, ...], output: str
) -> None:
    """Remove the pods of NAME… until it is resumed; completed indexes stay completed."""
    _set_suspend(env, target, names, output, wanted=True)


@click.command(cls=Command, examples=("grange job resume train",))
@job_lookup.NAMES
@options.output(documents.OBJECT)
@options.connected
def resume(
    env: Environment, target: session.ClusterTarget, names: tuple[str, ...], output: str
) -> None:
    """Create the pods of NAME… again."""
    _set_suspend(env, target, names, output, wanted=False)


def _set_suspend(
    env: Environment,
    target: session.ClusterTarget,
    names: tuple[str, ...],
    output: str,
    *,
    wanted: bool,
) -> None:
    async def verb(opened: session.ApiSession) -> int:
        results = Results(output)
        for name in names:
            with results.refusals.of_one():
                kind, found = await job_lookup.find(opened, name)
                job = _unfinished(found)
                change: Any = wanted
                for key in reversed(job_view.suspend_path(found)):
                    change = {key: change}
                changed = await _patch(opened, kind, found, change)
                results.add(kind, changed, f"{job.label} {'suspended' if wanted else 'resumed'}")
        return results.end()

    session.run(env, target, verb)


@click.command(
    cls=Command, examples=("grange job restart train", "grange job restart train --role worker")
)
@job_lookup.NAME
@click.option("--role", default="", help="Only this role; all by default.")
@options.output(documents.OBJECT)
@options.connected
def restart(
    env: Environment, target: session.ClusterTarget, name: str, role: str, output: str
) -> None:
    """Replace the pods of NAME; the restart is not charged to any limit.

    All indexes run again, completed ones included.
    """

    async def verb(opened: session.ApiSession) -> int:
        for _ in range(_ATTEMPTS - 1):
            try:
                await _restart(opened, name, role, output)
            except Conflict:  # its status was written in between
                continue
            else:
                return 0
        await _restart(opened, name, role, output)
        return 0

    session.run(env, target, verb)


async def _restart(opened: session.ApiSession, name: str, role: str, output: str) -> None:
    """Ask for a restart, fenced by the version that was read, and print what was done.

    Raises:
        Conflict: the job has changed meanwhile.
    """
    kind, found = await job_lookup.find(opened, name)
    job = _unfinished(found)
    attempts = requested_attempts(found, role)
    results = Results(output)
    if attempts is None:
        results.add(kind, found, f"{job.label} has been asked to restart already")
        results.end()
        return
    notes = {minimum_attempts.ANNOTATION: minimum_attempts.written(attempts)}
    version = found["metadata"]["resourceVersion"]
    change = {"metadata": {"annotations": notes, "resourceVersion": version}}
    changed = await _patch(opened, kind, found, change)
    results.add(kind, changed, f"{job.label} restarts {f'role {role}' if role else 'all roles'}")
    results.end()


def requested_attempts(found: Document, role: str) -> dict[str, int] | None:
    """The lowest attempts that restart a role, or all; None where that is requested and not met.

    Raises:
        click.UsageError: the job has no such role.
    """
    job = job_view.view(found)
    notes = found["metadata"].get("annotations") or {}
    asked = minimum_attempts.parse(notes.get(minimum_attempts.ANNOTATION, ""))
    chosen = [item for item in job.roles if not role or item.name.lower() == role.lower()]
    if not chosen:
        raise job_lookup.no_role(job, role)
    wanted = {item.name.lower(): item.attempt + 1 for item in chosen}
    if all(asked.get(name, 0) >= attempt for name, attempt in wanted.items()):
        return None
    return {**asked, **{name: max(asked.get(name, 0), at) for name, at in wanted.items()}}


@click.command(cls=Command, examples=("grange job scale train worker=8",))
@job_lookup.NAME
@click.argument("sizes", nargs=-1, required=True, metavar="ROLE=N…")
@options.output(documents.OBJECT)
@options.connected
def scale(
    env: Environment, target: session.ClusterTarget, name: str, sizes: tuple[str, ...], output: str
) -> None:
    """Set the replicas of roles of NAME; of a Job, worker=N sets its parallelism."""
    wanted = dict(map(_size, sizes))

    async def verb(opened: session.ApiSession) -> int:
        kind, found = await job_lookup.find(opened, name)
        job = _unfinished(found)
        changed = await _patch(opened, kind, found, scaled(found, wanted))
        listed = ", ".join(f"{role}={number}" for role, number in wanted.items())
        results = Results(output)
        results.add(kind, changed, f"{job.label} scaled to {listed}")
        results.end()
        return 0

    session.run(env, target, verb)


def scaled(found: Document, wanted: dict[str, int]) -> Document:
    """The merge patch that sets replicas.

    Raises:
        click.UsageError: the job has no such role.
    """
    job, path = job_view.view(found), job_view.sizes_path(found)
    spelled = {item.name.lower(): item.name for item in job.roles}
    for role in wanted:
        if role.lower() not in spelled:
            raise job_lookup.no_role(job, role)
    if not path:
        return {"spec": {"parallelism": next(iter(wanted.values()))}}
    roles = {spelled[role.lower()]: {"replicas": number} for role, number in wanted.items()}
    return {"spec": {path.removeprefix("spec."): roles}}


def _size(text: str) -> tuple[str, int]:
    role, _, number = text.partition("=")
    if not role or not (number.isascii() and number.isdecimal()):
        raise click.UsageError(f"{text}: not a size; write ROLE=N, for example worker=4")
    return role, int(number)


def _unfinished(found: Document) -> job_view.JobView:
    job = job_view.view(found)
    if job.is_finished:
        text = f"{job.label} has {job.phase.lower()}; delete it and run it again"
        raise click.ClickException(text)
    return job


async def _patch(
    opened: session.ApiSession, kind: AnyKind, found: Document, change: Document
) -> Document:
    """Patch the job that was found, and no other one of its name."""
    meta = {**(change.get("metadata") or {}), "uid": found["metadata"]["uid"]}
    answer = await opened.fetch(
        Request(
            "PATCH",
            kind.path(found["metadata"].get("namespace", ""), found["metadata"]["name"]),
            headers={"content-type": http.MERGE_PATCH},
            body=encode({**change, "metadata": meta}),
        )
    )
    return decode_document(answer.body)
