"""``grange delete``: delete objects and wait until they are gone."""

import click

from grange.api import http
from grange.api.codec import decode_document, encode
from grange.api.http import Request
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import NotFound
from grange.cli import board, manifests, session, terminal
from grange.cli.durations import parse_duration
from grange.cli.printers import documents
from grange.cli.surroundings import Surroundings


@click.command()
@click.argument("what", nargs=-1)
@click.option("-f", "--filename", "files", multiple=True, help="Objects of these manifests.")
@click.option("-l", "--selector", default="", help="Objects with these labels.")
@click.option("--all", "every", is_flag=True, help="All objects of the kind in the namespace.")
@click.option("--grace-period", type=int, default=None, help="Seconds to end; the kind's default.")
@click.option("--now", is_flag=True, help="Grace period of 1 second.")
@click.option("--force", is_flag=True, help="Grace period of 0: gone at once, ended later.")
@click.option(
    "--cascade",
    type=click.Choice(["background", "foreground", "orphan"]),
    default="background",
    show_default=True,
    help="What becomes of the objects that these own.",
)
@click.option("--wait/--no-wait", "waiting", default=True, help="Wait until they are gone.")
@click.option("--ignore-not-found", is_flag=True, help="Succeed if there is nothing to delete.")
@click.option("--timeout", default="60s", show_default=True, help="For example 30s, 2m, 1h.")
@session.connected
def command(
    around: Surroundings, target: session.Target, what: tuple[str, ...], **options: object
) -> None:
    """Delete KIND NAME…, KIND/NAME…, the objects of manifests, or by label."""
    files = options.pop("files")
    if not isinstance(files, tuple) or bool(what) == bool(files):
        raise click.UsageError("name objects or give -f FILE, one of the two")
    pairs = session.split_names(what) if what else []
    if any(not name for _, name in pairs) and not (options["selector"] or options["every"]):
        raise click.UsageError("name the objects, or say -l SELECTOR or --all")
    options["timeout"] = parse_duration(str(options["timeout"]))
    wanted = manifests.read(files) if files else []
    session.run(around, target, lambda opened: _delete(opened, pairs, wanted, options))


async def _delete(
    opened: session.Session,
    pairs: list[tuple[str, str]],
    wanted: list[Document],
    options: dict[str, object],
) -> int:
    targets = await _targets(opened, pairs, wanted, str(options["selector"]))
    body = encode(_options(options))
    gone: list[tuple[AnyKind, str, str]] = []
    uids: set[str] = set()
    failures = 0
    for kind, name, namespace in targets:
        try:
            answer = await opened.fetch(
                Request(
                    "DELETE",
                    kind.path(namespace, name),
                    headers={"content-type": http.JSON},
                    body=body,
                )
            )
        except NotFound as error:
            if not options["ignore_not_found"]:
                terminal.echo(f"Error: {error.message}", err=True)
                failures += 1
            continue
        terminal.echo(f'{documents.resource(kind)} "{name}" deleted')
        gone.append((kind, name, namespace))
        uids.add(_uid(decode_document(answer.body)))
    if not targets:
        terminal.echo("No resources found.", err=True)
    if options["waiting"] and gone:
        timeout_s = float(str(options["timeout"]))
        failures += await board.wait_gone(opened, gone, uids, timeout_s=timeout_s)
    return 1 if failures else 0


def _uid(answer: Document) -> str:
    """The uid of what was deleted: the answer is the object, or a Status about it."""
    about = answer.get("details") if answer.get("kind") == "Status" else answer.get("metadata")
    return str((about or {}).get("uid", ""))


def _options(options: dict[str, object]) -> Document:
    body: Document = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": str(options["cascade"]).capitalize(),
    }
    grace = options["grace_period"]
    if options["force"]:
        grace = 0
    elif options["now"]:
        grace = 1
    if grace is not None:
        body["gracePeriodSeconds"] = grace
    return body


async def _targets(
    opened: session.Session, pairs: list[tuple[str, str]], wanted: list[Document], selector: str
) -> list[tuple[AnyKind, str, str]]:
    targets = await opened.targets(pairs, selector=selector)
    for document in reversed(wanted):  # what was made last goes first
        kind = await opened.kind_of(document)
        metadata = document.get("metadata", {})
        namespace = opened.within(kind, metadata.get("namespace", ""))
        targets.append((kind, str(metadata.get("name", "")), namespace))
    return targets
