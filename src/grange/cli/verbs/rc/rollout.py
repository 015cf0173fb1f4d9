"""``grange rc rollout``: rollouts of a template, and from one controller to another."""

from collections.abc import Sequence
from dataclasses import replace

import click

from grange.api import rollouts, timestamps
from grange.api.codec import to_document
from grange.api.kinds import POD, REPLICATIONCONTROLLER, ROLLINGUPDATE
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Document, preconditions
from grange.api.rollouts import Revision
from grange.api.scheme import AnyKind
from grange.base.first_few import first_few
from grange.cli import (
    failure_causes,
    manifests,
    options,
    readiness,
    session,
    terminal,
    waiting,
)
from grange.cli.changed_paths import changed_paths
from grange.cli.command import Group
from grange.cli.confirm import confirm
from grange.cli.durations import parse_duration
from grange.cli.environment import Environment
from grange.cli.printers import documents, table
from grange.cli.rollout_status import rollout_status
from grange.cli.verbs.rc import objects, rolling_updates

_HISTORY = ["REVISION", "TEMPLATE", "PRESENT", "RUNS", "CHANGED", "CAUSE", "RECORDED"]
_PATHS = 3


@click.group("rollout", cls=Group)
def command() -> None:
    """Rollouts: within one controller, or from one to another."""


@command.command(
    "start",
    examples=(
        "grange rc rollout start web -f pod.yaml",
        "grange rc rollout start new --from old --desired 3 --minimum 3",
    ),
)
@click.argument("name", type=objects.CONTROLLER)
@click.option(
    "-f",
    "--filename",
    type=click.Path(),
    default="",
    help="File with the new template; - is standard input.",
)
@click.option("--restart", is_flag=True, help="Replace every pod, with the same template.")
@click.option(
    "--from",
    "old",
    type=objects.CONTROLLER,
    default=None,
    help="Move replicas from this controller to NAME.",
)
@click.option(
    "--desired", type=click.IntRange(min=0), default=None, help="Replicas of NAME in the end."
)
@click.option(
    "--minimum", type=click.IntRange(min=0), default=None, help="Replicas that stay available."
)
@click.option(
    "--surge", type=click.IntRange(min=0), default=0, help="Extra replicas allowed meanwhile."
)
@click.option(
    "--canary",
    type=click.IntRange(min=0),
    default=None,
    help="Pause at this number of new replicas.",
)
@click.option("--leave-old", is_flag=True, help="Keep the old controller when it is empty.")
@click.option("--auto-rollback", is_flag=True, help="Roll back when it makes no progress.")
@options.YES
@objects.OUTPUT
@options.connected
def start(env: Environment, target: session.ClusterTarget, name: str, **given: object) -> None:
    """Start a rollout of NAME.

    Give one of -f TEMPLATE, --restart, or --from OLD --desired N --minimum M.
    """
    old, filename = str(given["old"] or ""), str(given["filename"])
    if sum((bool(filename), bool(given["restart"]), bool(old))) != 1:
        raise click.UsageError("give one of -f FILE, --restart or --from OLD")
    if old and (given["desired"] is None or given["minimum"] is None):
        raise click.UsageError("--from needs --desired N and --minimum M; both may be 0")
    if old == name:
        raise click.UsageError(
            f"--from {old}: a rollout from a controller to itself; name two controllers"
        )
    template = objects.template_of(filename, manifests.read_one(filename)) if filename else None

    async def verb(opened: session.ApiSession) -> int:
        ops = objects.operations(opened)
        seen = await ops.get(name)
        if old:
            made = await rolling_updates.begin(opened, await ops.get(old), seen, given)
            return rolling_updates.report(str(given["output"]), made, f"started: {old} to {name}")
        objects.confirm_replacing(seen, yes=bool(given["yes"]))
        if template is not None:
            await objects.set_template(opened, seen, template)
        else:
            stamp = timestamps.rfc3339_micro(env.clock.now())
            await restart(opened, seen, stamp)
        await objects.report(opened, [name], str(given["output"]), "rollout started")
        return 0

    session.run(env, target, verb)


async def restart(opened: session.ApiSession, seen: ReplicationController, stamp: str) -> None:
    """Replace every pod, if the controller's spec is unchanged.

    Raises:
        Conflict: it is not.
    """

    async def write(now: ReplicationController) -> None:
        change = {"metadata": preconditions(now.metadata), **rollouts.restart_patch(stamp)}
        await _patch(opened, now.metadata.name, change)

    await objects.as_seen(opened, seen, write)


@command.command("status", examples=("grange rc rollout status web",))
@click.argument("name", type=objects.CONTROLLER)
@click.option("--wait/--no-wait", default=True, help="Wait until it is complete.")
@options.timeout("10m")
@options.output(documents.REPORT)
@options.connected
def status(
    env: Environment,
    target: session.ClusterTarget,
    name: str,
    *,
    wait: bool,
    timeout: str,
    output: str,
) -> None:
    """Follow the rollout of NAME to its end.

    The exit code is 1 if it fails, is refused, rolled back or cancelled, or time runs out.
    """
    timeout_s = parse_duration(timeout)

    async def verb(opened: session.ApiSession) -> int:
        return await followed(opened, name, output, wait=wait, timeout_s=timeout_s)

    session.run(env, target, verb)


async def followed(
    opened: session.ApiSession, name: str, output: str = "", *, wait: bool, timeout_s: float
) -> int:
    """Print the state of the rollout of a controller, or follow it to its end; the exit code."""
    update = await rolling_updates.to_follow(opened, name, wait=wait)
    kind: AnyKind = REPLICATIONCONTROLLER if update is None else ROLLINGUPDATE
    meant = name if update is None else update.metadata.name
    own = within_done if update is None else rolling_updates.done
    code = 0
    if wait:
        await opened.document(kind, meant)  # a name that does not exist is an error at once
        shown = [(kind, meant, opened.within(kind))]
        code = await waiting.wait_ready(opened, shown, timeout_s=timeout_s, own=own)
        if not output:
            return code
    found = await opened.document(kind, meant)
    pods = await opened.listed(POD) if update is None else None
    state = rollout_status(found, pods, opened.env.clock.now(), own=own)
    if output:
        facts = {
            "kind": kind.kind,
            "name": meant,
            "done": state.done,
            "failed": state.failed,
            "message": state.text,
        }
        terminal.write(documents.report(output, facts))
    else:
        terminal.echo(state.text)
    return code or int(state.failed)


def within_done(found: Document | None) -> readiness.WaitState:
    """How far a rollout within one controller is, in words about the rollout."""
    if found is None:
        return readiness.WaitState(done=False, text="not there")
    own = readiness.ready(found)
    if not readiness.is_observed(found):
        return own
    spec, status = found.get("spec") or {}, found.get("status") or {}
    state = status.get("rollout") or {}
    phase = str(state.get("phase") or "")
    wanted, updated = spec.get("replicas") or 0, status.get("updatedReplicas") or 0
    text = f"{phase or 'waiting for the controller'}, {updated} of {wanted} updated"
    if (spec.get("rollout") or {}).get("paused") and phase != "Paused":
        text += ", paused"
    if phase == "Waiting":
        text += f": {readiness.at_canaries('spec.rollout.canary')}"
    if state.get("message"):
        text += f": {state['message']}"
    if phase == "Complete" and updated < wanted:  # the template is, the replicas are not
        text += f" ({reason})" if (reason := _reconciled(found)) else ""
    return replace(own, text=text)


def _reconciled(found: Document) -> str:
    """What keeps the controller from being as wanted; empty where nothing does."""
    reported = failure_causes.condition(found, "Reconciled") or {}
    return str(reported.get("message") or "") if reported.get("status") == "False" else ""


@command.command("pause", examples=("grange rc rollout pause web",))
@click.argument("name", type=objects.CONTROLLER)
@objects.OUTPUT
@options.connected
def pause(env: Environment, target: session.ClusterTarget, name: str, output: str) -> None:
    """Stop the rollout of NAME where it is.

    Scaling and repairing go on.
    """
    session.run(env, target, lambda opened: hold(opened, name, output, paused=True))


@command.command("resume", examples=("grange rc rollout resume web",))
@click.argument("name", type=objects.CONTROLLER)
@objects.OUTPUT
@options.connected
def resume(env: Environment, target: session.ClusterTarget, name: str, output: str) -> None:
    """Let the rollout of NAME go on."""
    session.run(env, target, lambda opened: hold(opened, name, output, paused=False))


async def hold(opened: session.ApiSession, name: str, output: str = "", *, paused: bool) -> int:
    """Stop a rollout where it is or let it go on: the move that is under way, or the template's."""
    word = "paused" if paused else "goes on"
    if (update := await rolling_updates.under_way(opened, name)) is not None:
        return rolling_updates.report(
            output, await rolling_updates.change(opened, update, {"paused": paused}), word
        )
    await _patch(opened, name, rollouts.pause_patch(paused=paused))
    await objects.report(opened, [name], output, f"rollout {word}")
    return 0


@command.command("undo", examples=("grange rc rollout undo web --to-revision 2",))
@click.argument("name", type=objects.CONTROLLER)
@click.option("--to-revision", type=click.IntRange(min=1), default=None, help="Else the last.")
@options.YES
@objects.OUTPUT
@options.connected
def undo(
    env: Environment,
    target: session.ClusterTarget,
    name: str,
    to_revision: int | None,
    *,
    yes: bool,
    output: str,
) -> None:
    """Take NAME back to what was before.

    To a remembered template; while replicas move between controllers, to the counts that the
    move began with.
    """

    async def verb(opened: session.ApiSession) -> int:
        if (update := await rolling_updates.under_way(opened, name)) is not None:
            if to_revision:
                raise click.UsageError(
                    "--to-revision: a rollout between controllers has no revisions; leave it out"
                )
            spec = update.spec
            back = f"{spec.new} back to {spec.old}" if spec.old else f"{spec.new} back"
            confirm(f"Move the replicas of {back}?", yes=yes)
            return rolling_updates.report(
                output, await rolling_updates.change(opened, update, {"undo": True}), "goes back"
            )
        seen = await objects.operations(opened).get(name)
        spec_hash = seen.status.rollout.spec_hash if seen.status.rollout is not None else ""
        revision = rollouts.revision_to_undo(seen.status.history, spec_hash, to_revision or 0)
        confirm(f"Go back to revision {revision.revision} of {name}?", yes=yes)
        await objects.set_template(opened, seen, revision.template)
        if seen.metadata.annotations.get(rollouts.CHANGE_CAUSE, "") != revision.change_cause:
            cause = {rollouts.CHANGE_CAUSE: revision.change_cause or None}
            await _patch(opened, name, {"metadata": {"annotations": cause}})
        await objects.report(opened, [name], output, f"goes back to revision {revision.revision}")
        return 0

    session.run(env, target, verb)


@command.command("history", examples=("grange rc rollout history web",))
@click.argument("name", type=objects.CONTROLLER)
@options.output(documents.REPORT)
@options.connected
def history(env: Environment, target: session.ClusterTarget, name: str, output: str) -> None:
    """List the templates of NAME, the latest last, and what each changed.

    CAUSE is the annotation kubernetes.io/change-cause of NAME at the time.
    """

    async def verb(opened: session.ApiSession) -> int:
        seen = await objects.operations(opened).get(name)
        if output:
            revisions = to_document(seen).get("status", {}).get("history") or []
            terminal.write(documents.report(output, {"revisions": revisions}))
            return 0
        present = seen.status.rollout.template_hash if seen.status.rollout is not None else ""
        rows = history_rows(seen.status.history, present)
        if not rows:
            terminal.echo(f"No templates of {name} are recorded yet.", err=True)
            return 0
        terminal.echo("\n".join(table.render([_HISTORY, *rows])))
        return 0

    session.run(env, target, verb)


def history_rows(history: Sequence[Revision], present: str) -> list[list[str]]:
    """The cells of each revision, the latest last.

    Args:
        history: what is remembered.
        present: hash of the template that pods are made from.
    """
    rows = []
    before: Revision | None = None
    for item in sorted(history, key=lambda item: item.revision):
        paths = [] if before is None else changed_paths(before.template, item.template)
        rows.append(
            [
                str(item.revision),
                item.template_hash,
                "*" if item.template_hash == present else "",
                ",".join(_runs(item.template)),
                first_few(paths, _PATHS),
                item.change_cause,
                item.recorded_at,
            ]
        )
        before = item
    return rows


def _runs(template: Document) -> list[str]:
    containers = (template.get("spec") or {}).get("containers") or []
    return [str(item.get("image") or " ".join(item.get("command") or [])) for item in containers]


async def _patch(opened: session.ApiSession, name: str, change: Document) -> None:
    where = opened.within(REPLICATIONCONTROLLER)
    await opened.client.patch(REPLICATIONCONTROLLER, name, where, patch=change)
