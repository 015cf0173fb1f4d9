"""Waiting for objects: until they are ready, gone, or meet a condition; with exit codes."""

from collections.abc import Callable, Collection, Sequence

from grange.api.kinds import POD
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import ApiError
from grange.base.tasks import Nursery
from grange.cli import failures, job_view, readiness, terminal
from grange.cli.progress import Progress
from grange.cli.rollout_status import rollout_status
from grange.cli.session import ApiSession
from grange.cli.watched_object import WatchedObject

WaitTarget = tuple[AnyKind, str, str]
"""Kind, name and namespace."""
Look = Callable[[WatchedObject], readiness.WaitState]
SILENT = "the server does not answer; trying again"


async def wait_ready(
    session: ApiSession,
    targets: Sequence[WaitTarget],
    *,
    timeout_s: float,
    own: readiness.Check = readiness.ready,
) -> int:
    """Wait until all are rolled out and ready; the exit code.

    It is 1, with the cause, as soon as one fails for good, and when time runs out.

    Args:
        session: the connection.
        targets: kind, name and namespace of each object.
        timeout_s: seconds after which to give up.
        own: reads the object's own status.
    """
    clock = session.env.clock

    def look(subject: WatchedObject) -> readiness.WaitState:
        return rollout_status(subject.document, subject.pods, clock.now(), own=own)

    return await _wait(session, targets, look, timeout_s=timeout_s, pods=True)


async def wait_gone(
    session: ApiSession, targets: Sequence[WaitTarget], uids: Collection[str], *, timeout_s: float
) -> int:
    """Wait until all are gone; 0, or 1 when time runs out.

    Args:
        session: the connection.
        targets: kind, name and namespace of each object.
        uids: of the objects: another one that has come under a name is not waited for; one that
            is empty means that the server did not return it; then names are compared.
        timeout_s: seconds after which to give up.
    """

    def check(document: Document | None) -> readiness.WaitState:
        found = "" if document is None else document["metadata"].get("uid")
        return readiness.gone(document if "" in uids or found in uids else None)

    return await wait_all(session, targets, check, timeout_s=timeout_s)


async def wait_all(
    session: ApiSession,
    targets: Sequence[WaitTarget],
    check: readiness.Check,
    *,
    timeout_s: float,
    next_step: bool = True,
) -> int:
    """Wait until the check holds for all; the exit code.

    Args:
        session: the connection.
        targets: kind, name and namespace of each object.
        check: the state of a document (None when the object does not exist).
        timeout_s: seconds after which to give up.
        next_step: print what to do when time runs out; objects may be deleted then.
    """
    return await _wait(
        session,
        targets,
        lambda subject: check(subject.document),
        timeout_s=timeout_s,
        pods=False,
        next_step=next_step,
    )


async def _wait(
    session: ApiSession,
    targets: Sequence[WaitTarget],
    look: Look,
    *,
    timeout_s: float,
    pods: bool,
    next_step: bool = True,
) -> int:
    progress = Progress(session.env)
    labels = [_label(kind, name) for kind, name, _ in targets]
    for label in labels:
        progress.add(label)
    try:
        async with session.env.clock.timeout(timeout_s), progress.shown(), Nursery("wait") as all_:
            for label, (kind, name, namespace) in zip(labels, targets, strict=True):
                subject = WatchedObject(session, kind, name, namespace, pods=pods)
                all_.start(_follow(progress, label, subject, look, all_))
    except TimeoutError:
        waiting = [row for row in progress.rows.values() if not row.state.done]
        for row in waiting:
            terminal.echo(
                f"timed out after {timeout_s:g}s: {row.label}: {row.state.text}", err=True
            )
        if waiting:
            label, text = waiting[0].label, ""
            target = targets[labels.index(label)]
            step = f"why {label}" if job_view.is_job(target[0]) else ""
            if pods:
                label, text = await _unready_pod(session, *target) or (label, "")
            if text not in waiting[0].state.text:
                terminal.echo(f"  {label}: {text}", err=True)
            if next_step:
                terminal.echo(f"next: grange {step or f'describe {label}'}", err=True)
        return 1
    failed = [row for row in progress.rows.values() if row.state.failed]
    for row in failed:
        terminal.echo(f"failed: {row.label}: {row.state.text}", err=True)
    if failed and pods:
        row = failed[0]
        label, text = await _unready_pod(session, *targets[labels.index(row.label)]) or ("", "")
        if text not in row.state.text:  # the last line of output adds to it
            terminal.echo(f"  {label}: {text}", err=True)
        terminal.echo(f"next: grange why {row.label}", err=True)
    return 1 if failed else 0


async def _unready_pod(
    session: ApiSession, kind: AnyKind, name: str, namespace: str
) -> tuple[str, str] | None:
    """The label of an owner's first unready pod (or of the pod itself), and why it is not ready."""
    try:
        found = await session.document(kind, name, namespace)
        if kind is POD:
            return _label(kind, name), await failures.describe(session, found)
        listed = await session.listed(POD, namespace)
    except ApiError:
        return None  # only a hint; the failure itself has been printed
    uid = found["metadata"]["uid"]
    for item in listed:
        if readiness.is_terminating(item) or readiness.is_ready(item):
            continue
        owners = item["metadata"].get("ownerReferences") or []
        if any(owner["uid"] == uid for owner in owners):
            return _label(POD, item["metadata"]["name"]), await failures.describe(session, item)
    return None


def _label(kind: AnyKind, name: str) -> str:
    word = kind.short_names[0] if kind.group and kind.short_names else kind.singular
    return f"{word}/{name}"


async def _follow(
    progress: Progress, label: str, subject: WatchedObject, look: Look, all_: Nursery
) -> None:
    """Look at one object now, at every change and when it is time, until it is decided."""
    known = ""
    async with Nursery(label) as nursery:
        for watch in subject.watches:
            nursery.start(watch())
        while True:
            again_s = None
            if subject.is_silent:
                progress.update(label, readiness.WaitState(done=False, text=known + SILENT))
            elif subject.is_known:
                state = look(subject)
                progress.update(label, state)
                if state.done or state.failed:
                    nursery.cancel()
                    break
                known, again_s = f"{state.text}, as last seen: ", state.again_s
            await subject.changed(again_s)
    if progress.rows[label].state.failed:
        all_.cancel()  # the others cannot change the exit code any more
