"""``grange delete``: delete objects and wait until they are gone."""

from contextlib import suppress

import click

from grange.api import http
from grange.api.codec import decode_document, encode
from grange.api.http import Request
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import NotFound
from grange.cli import completers, manifests, options, session, terminal, waiting
from grange.cli.command import Command
from grange.cli.durations import parse_duration
from grange.cli.environment import Environment
from grange.cli.printers import documents
from grange.cli.refused_objects import RefusedObjects
from grange.cli.results import Results


@click.command(
    cls=Command,
    examples=(
        "grange delete -f web.yaml",
        "grange delete pods -l app=web",
    ),
)
@click.argument("what", nargs=-1, shell_complete=completers.objects)
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    type=click.Path(),
    help="Objects of these manifests.",
)
@options.SELECTOR
@click.option("--all", "every", is_flag=True, help="All objects of the kind in the namespace.")
@click.option(
    "--grace-period", type=int, default=None, help="Seconds to terminate; default: the object's."
)
@click.option("--now", is_flag=True, help="Grace period of 1 second.")
@click.option(
    "--force", is_flag=True, help="Grace period of 0: deleted at once; programs end later."
)
@click.option(
    "--cascade",
    type=click.Choice(["background", "foreground", "orphan"]),
    default="background",
    show_default=True,
    help="How to treat the objects that these own.",
)
@click.option("--wait/--no-wait", default=True, help="Wait until they are gone.")
@click.option("--ignore-not-found", is_flag=True, help="Succeed if there is nothing to delete.")
@options.timeout("60s")
@options.output(documents.OBJECT)
@options.connected
def command(
    env: Environment, target: session.ClusterTarget, what: tuple[str, ...], **given: object
) -> None:
    """Delete KIND NAME…, KIND/NAME…, the objects of manifests, or by label."""
    files = given.pop("files")
    if not isinstance(files, tuple) or bool(what) == bool(files):
        raise click.UsageError("give either objects or -f FILE")
    pairs = session.split_names(what) if what else []
    if any(not name for _, name in pairs) and not (given["selector"] or given["every"]):
        raise click.UsageError("no name; write KIND NAME…, or add -l SELECTOR or --all")
    given["timeout"] = parse_duration(str(given["timeout"]))
    wanted = manifests.read(files) if files else []
    session.run(env, target, lambda opened: _delete(opened, pairs, wanted, given))


async def _delete(
    opened: session.ApiSession,
    pairs: list[tuple[str, str]],
    wanted: list[Document],
    given: dict[str, object],
) -> int:
    results = Results(str(given["output"]))
    refusals = results.refusals
    targets = await _targets(opened, pairs, wanted, str(given["selector"]), refusals)
    body = encode(_options(given))
    gone: list[tuple[AnyKind, str, str]] = []
    uids: set[str] = set()
    ignored = (NotFound,) if given["ignore_not_found"] else ()
    for kind, name, namespace in targets:
        path, headers = kind.path(namespace, name), {"content-type": http.JSON}
        with refusals.of_one(), suppress(*ignored):
            answer = await opened.fetch(Request("DELETE", path, headers=headers, body=body))
            deleted = decode_document(answer.body)
            results.add(kind, _named(deleted, name), f'{documents.resource(kind)} "{name}" deleted')
            gone.append((kind, name, namespace))
            uids.add(_uid(deleted))
    code = results.end()
    if not targets and not refusals.count:
        terminal.echo("No resources found.", err=True)
    if given["wait"] and gone:
        timeout_s = float(str(given["timeout"]))
        return await waiting.wait_gone(opened, gone, uids, timeout_s=timeout_s) or code
    return code


def _named(answer: Document, name: str) -> Document:
    """The answer with the name of what was deleted: that of a Status is in its details."""
    return {**answer, "metadata": {**(answer.get("metadata") or {}), "name": name}}


def _uid(answer: Document) -> str:
    """The uid of what was deleted: the answer is the object, or a Status about it."""
    about = answer.get("details") if answer.get("kind") == "Status" else answer.get("metadata")
    return str((about or {}).get("uid", ""))


def _options(given: dict[str, object]) -> Document:
    body: Document = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": str(given["cascade"]).capitalize(),
    }
    grace = given["grace_period"]
    if given["force"]:
        grace = 0
    elif given["now"]:
        grace = 1
    if grace is not None:
        body["gracePeriodSeconds"] = grace
    return body


async def _targets(
    opened: session.ApiSession,
    pairs: list[tuple[str, str]],
    wanted: list[Document],
    selector: str,
    refusals: RefusedObjects,
) -> list[tuple[AnyKind, str, str]]:
    targets = await opened.targets(pairs, refusals, selector=selector)
    for document in reversed(wanted):  # what was made last goes first
        with refusals.of_one():
            kind = await opened.kind_of(document)
            metadata = document.get("metadata", {})
            namespace = opened.within(kind, metadata.get("namespace", ""))
            targets.append((kind, str(metadata.get("name", "")), namespace))
    return targets
