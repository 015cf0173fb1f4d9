"""Rollouts between two controllers: which one a name refers to, and its state."""

from collections.abc import Iterable

import click

from grange.api import timestamps
from grange.api.codec import to_document
from grange.api.kinds import ROLLINGUPDATE
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.rollingupdate import RollingUpdate
from grange.api.meta import Document
from grange.api.status import NotFound
from grange.cli import readiness, session
from grange.cli.confirm import confirm
from grange.cli.printers import documents
from grange.cli.results import Results
from grange.cli.slow_notice import SlowNotice
from grange.cli.verbs.rc import objects

OVER = frozenset({"Complete", "RolledBack", "Refused"})

_OBSERVED_S = 10.0  # after that, no process works on the controller
_RECORDED_S = 10.0  # after that, no process writes records
_LOOK_S = 0.1


def latest_first(name: str, updates: Iterable[RollingUpdate]) -> list[RollingUpdate]:
    """The rollouts from or to a controller, the latest first.

    Of two that were created in the same second, one that goes on comes before one that is over.
    """
    mine = [item for item in updates if name in {item.spec.old, item.spec.new}]
    return sorted(
        mine,
        key=lambda item: (item.metadata.creation_timestamp or "", item.status.phase not in OVER),
        reverse=True,
    )


async def under_way(opened: session.ApiSession, name: str) -> RollingUpdate | None:
    """The latest rollout from or to the controller that is neither over nor cancelled, if any."""
    for item in await _of(opened, name):
        if item.status.phase not in OVER and not item.metadata.deletion_timestamp:
            return item
    return None


async def to_follow(opened: session.ApiSession, name: str, *, wait: bool) -> RollingUpdate | None:
    """The rollout between controllers whose end is the end of the rollout of this one.

    None where the controller's own status decides: it took part in no rollout, that rollout is
    complete, or it has another template since.

    Args:
        opened: the session.
        name: of the controller.
        wait: give its owner the time to see its latest change.
    """
    found = await _of(opened, name)
    if not found or found[0].status.phase not in OVER:
        return found[0] if found else None
    clock = opened.env.clock
    limit = clock.monotonic() + (_OBSERVED_S if wait else 0.0)
    slow = SlowNotice(opened.env, f"waiting for the controller of {name}")
    try:
        seen = await objects.operations(opened).get(name)
        while (
            seen.status.observed_generation < seen.metadata.generation and clock.monotonic() < limit
        ):
            slow.check()
            await clock.sleep(_LOOK_S)
            seen = await objects.operations(opened).get(name)
    except NotFound:
        return found[0]  # an old controller goes when nothing of it is left
    complete = found[0].status.phase == "Complete"
    return None if complete or is_outdated(found[0], seen) else found[0]


def is_outdated(update: RollingUpdate, controller: ReplicationController) -> bool:
    """Whether a rollout that is over no longer describes the controller.

    The controller was created, or given another template, after that.
    """
    if not update.status.finished_at:
        return False
    over = timestamps.parse(update.status.finished_at)
    later = [item.recorded_at for item in controller.status.history if item.revision > 1]
    times = [controller.metadata.creation_timestamp or "", *later]
    return any(timestamps.parse(item) > over for item in times if item)


def done(found: Document | None) -> readiness.WaitState:
    """The state of a rollout between two controllers; one deleted before its end was cancelled."""
    if found is None:
        return readiness.WaitState(done=False, text="was cancelled", failed=True)
    return readiness.rolling_update(found)


def describe(update: RollingUpdate) -> str:
    """One line about a rollout: the controllers and its state."""
    spec = update.spec
    way = f"{spec.old} to {spec.new}" if spec.old else f"to {spec.new}"
    way += f" (gru/{update.metadata.name})"
    return f"{way}: {readiness.rolling_update(to_document(update)).text}"


async def _of(opened: session.ApiSession, name: str) -> list[RollingUpdate]:
    try:
        found = await opened.client.list(ROLLINGUPDATE, opened.within(ROLLINGUPDATE))
    except NotFound:  # a server that does not serve the kind
        return []
    return latest_first(name, found.items)


async def begin(
    opened: session.ApiSession,
    old: ReplicationController,
    new: ReplicationController,
    given: dict[str, object],
) -> RollingUpdate:
    """Start a rollout from one controller to another, after confirmation.

    Raises:
        NotConfirmed: the answer was not yes, or there is no terminal.
        click.ClickException: another one to this controller is in progress.
    """
    moves = f"Move replicas from {old.metadata.name} ({old.spec.replicas}) to {new.metadata.name}"
    confirm(
        f"{moves} ({new.spec.replicas}), {given['desired']} in the end?", yes=bool(given["yes"])
    )
    spec: Document = {
        "old": old.metadata.name,
        "new": new.metadata.name,
        "desired": given["desired"],
        "minimum": given["minimum"],
        "maxSurge": given["surge"],
        "leaveOld": given["leave_old"],
        "autoRollback": given["auto_rollback"],
        "startingReplicas": {"old": old.spec.replicas, "new": new.spec.replicas},
    }
    if given["canary"] is not None:
        spec["canary"] = given["canary"]
    document: Document = {"metadata": {"name": new.metadata.name}, "spec": spec}
    await _clear(opened, new.metadata.name)
    return await opened.client.create(ROLLINGUPDATE, document, opened.within(ROLLINGUPDATE))


async def _clear(opened: session.ApiSession, name: str) -> None:
    """Make room for a move of replicas where one is over; one that goes on keeps its place."""
    where = opened.within(ROLLINGUPDATE)
    try:
        found = await opened.client.get(ROLLINGUPDATE, name, where)
    except NotFound:
        return
    if found.status.phase not in OVER:
        raise click.ClickException(
            f"a rollout from {found.spec.old} to {name} is in progress; "
            f"wait for it (grange rc rollout status {name}) or undo it"
        )
    slow = SlowNotice(opened.env, f"waiting for the record of the last rollout to {name}")
    try:
        async with opened.env.clock.timeout(_RECORDED_S):
            await opened.client.delete(ROLLINGUPDATE, name, where, uid=found.metadata.uid)
            while True:  # it stays until its end is recorded
                await opened.client.get(ROLLINGUPDATE, name, where)
                slow.check()
                await opened.env.clock.sleep(_LOOK_S)
    except NotFound:
        return
    except TimeoutError as error:
        raise click.ClickException(
            f"the record of the last rollout to {name} is not written yet; check with grange farm status that controllers run"
        ) from error


def report(output: str, update: RollingUpdate, done: str) -> int:
    """Print what was done to a rollout between two controllers, or with a format the rollout."""
    results = Results(output)
    line = f"{documents.resource(ROLLINGUPDATE)}/{update.metadata.name} {done}"
    results.add(ROLLINGUPDATE, to_document(update), line)
    results.end()
    return 0


async def change(
    opened: session.ApiSession, update: RollingUpdate, spec: Document
) -> RollingUpdate:
    """Change this rollout, and no other that has come under its name."""
    patch: Document = {"metadata": {"uid": update.metadata.uid}, "spec": spec}
    where = opened.within(ROLLINGUPDATE)
    return await opened.client.patch(ROLLINGUPDATE, update.metadata.name, where, patch=patch)
