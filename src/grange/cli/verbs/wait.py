"""``grange wait``: wait until objects meet a condition."""

from collections.abc import Sequence
from contextlib import suppress

import click

from grange.api.meta import Document
from grange.api.status import NotFound
from grange.cli import options, readiness, session, terminal, waiting
from grange.cli.command import Command
from grange.cli.durations import parse_duration
from grange.cli.environment import Environment
from grange.cli.printers import documents, jsonpath
from grange.cli.refused_objects import RefusedObjects
from grange.cli.results import Results


@click.command(
    cls=Command,
    examples=(
        "grange wait grc/web --timeout 2m",
        "grange wait pods -l app=web --for condition=Ready",
    ),
)
@options.WHAT
@click.option(
    "--for",
    "goal",
    default="ready",
    show_default=True,
    help="ready, delete, create, condition=TYPE[=STATUS] or jsonpath={PATH}=VALUE.",
)
@options.SELECTOR
@click.option("--all", "every", is_flag=True, help="All objects of the kind.")
@options.timeout("30s")
@options.output(documents.OBJECT)
@options.connected
def command(  # noqa: PLR0913  click hands every option over by name
    env: Environment,
    target: session.ClusterTarget,
    what: tuple[str, ...],
    *,
    goal: str,
    selector: str,
    every: bool,
    timeout: str,
    output: str,
) -> None:
    """Wait for KIND NAME…, KIND/NAME…, or the objects with a label."""
    check = parse_goal(goal)
    timeout_s = parse_duration(timeout)
    pairs = session.split_names(what)
    if any(not name for _, name in pairs) and not (selector or every):
        raise click.UsageError("no name; write KIND NAME…, or add -l SELECTOR or --all")

    async def verb(opened: session.ApiSession) -> int:
        refusals = RefusedObjects()
        targets = await opened.targets(pairs, refusals, selector=selector)
        if not targets and not refusals.count:
            terminal.echo("no matching resources found", err=True)
            return 1
        if check is readiness.ready:
            code = await waiting.wait_ready(opened, targets, timeout_s=timeout_s)
        elif check is readiness.gone:
            code = await waiting.wait_gone(
                opened, targets, await uids(opened, targets), timeout_s=timeout_s
            )
        else:
            code = await waiting.wait_all(opened, targets, check, timeout_s=timeout_s)
        if code == 0:
            results = Results(output)
            for kind, name, namespace in targets:
                found: Document = {}
                if results.wants_objects:
                    with suppress(NotFound):
                        found = await opened.document(kind, name, namespace)
                if found or not results.wants_objects:
                    results.add(kind, found, f"{documents.resource(kind)}/{name} condition met")
            results.end()
        return code or refusals.code

    session.run(env, target, verb)


async def uids(opened: session.ApiSession, targets: Sequence[waiting.WaitTarget]) -> set[str]:
    """The uids of those that are there."""
    found = set()
    for target in targets:
        with suppress(NotFound):
            found.add(str((await opened.document(*target))["metadata"]["uid"]))
    return found


def parse_goal(goal: str) -> readiness.Check:
    """The check that ``--for`` names.

    Raises:
        click.UsageError: it names none.
    """
    name, _, rest = goal.partition("=")
    if goal in {"ready", "delete", "create"}:
        return {"ready": readiness.ready, "delete": readiness.gone, "create": _created}[goal]
    if name == "condition" and rest:
        kind, _, status = rest.partition("=")
        return readiness.has_condition(kind, status or "True")
    if name == "jsonpath" and "}" in rest:
        path, _, value = rest.rpartition("}")
        return _jsonpath(f"{path}}}", value.removeprefix("="))
    raise click.UsageError(
        f"--for={goal}: unknown; write ready, delete, create, condition=… or jsonpath=…"
    )


def _created(document: Document | None) -> readiness.WaitState:
    there = document is not None
    return readiness.WaitState(done=there, text="created" if there else "not there")


def _jsonpath(path: str, value: str) -> readiness.Check:
    def check(document: Document | None) -> readiness.WaitState:
        if document is None:
            return readiness.WaitState(done=False, text="not there")
        found = jsonpath.evaluate(path, document)
        return readiness.WaitState(done=found == value if value else bool(found), text=found)

    return check
