"""``grange logs``: print what containers write."""

import sys
from collections.abc import Mapping
from contextlib import aclosing

import click

from grange.api.codec import decode_document
from grange.api.http import Request
from grange.api.kinds import POD
from grange.api.meta import Document
from grange.api.status import ApiError
from grange.base.tasks import Nursery
from grange.cli import session, stream, terminal
from grange.cli.durations import parse_duration
from grange.cli.surroundings import Surroundings


@click.command()
@click.argument("what", required=False, default="")
@click.option("-c", "--container", default="", help="Container; the only or first one by default.")
@click.option("-f", "--follow", is_flag=True, help="Go on as more is written.")
@click.option("-p", "--previous", is_flag=True, help="Of the container's run before this one.")
@click.option("-l", "--selector", default="", help="Of all pods with these labels.")
@click.option("--tail", type=int, default=-1, help="Only the last so many lines.")
@click.option("--since", default="", help="Only the last, e.g., 30s, 5m.")
@click.option("--timestamps", is_flag=True, help="Put the time before each line.")
@click.option("--prefix", is_flag=True, help="Put the pod before each line.")
@session.connected
def command(
    around: Surroundings, target: session.Target, what: str, selector: str, **options: object
) -> None:
    """Print the log of POD, of the pods of grc/NAME, or of pods with a label."""
    if bool(what) == bool(selector):
        raise click.UsageError("name a pod (or KIND/NAME), or give -l SELECTOR")
    query = _query(options)

    async def verb(opened: session.Session) -> int:
        pods = await _pods(opened, what, selector)
        if not pods:
            terminal.echo("no matching pods", err=True)
            return 1
        many = len(pods) > 1 or bool(options["prefix"])
        if len(pods) == 1:
            await _print(opened, pods[0], query, f"[{pods[0]}] " if many else "")
            return 0
        async with Nursery("logs") as nursery:
            tasks = [nursery.start(_print_one_of_many(opened, pod, query)) for pod in pods]
        return 0 if all(task.result() for task in tasks) else 1

    session.run(around, target, verb)


def _query(options: Mapping[str, object]) -> dict[str, str]:
    query: dict[str, str] = {}
    if options["container"]:
        query["container"] = str(options["container"])
    for name in ("follow", "previous", "timestamps"):
        if options[name]:
            query[name] = "true"
    if int(str(options["tail"])) >= 0:
        query["tailLines"] = str(options["tail"])
    if options["since"]:
        query["sinceSeconds"] = str(max(1, round(parse_duration(str(options["since"])))))
    return query


async def _pods(opened: session.Session, what: str, selector: str) -> list[str]:
    word, _, name = what.partition("/")
    if what and not name:
        return [word]
    if what:
        kind = await opened.kind(word)
        if kind is POD:
            return [name]
        owner: Document = await opened.document(kind, name)
        uid = owner["metadata"]["uid"]
        items = await _list(opened, {})
        return [
            item["metadata"]["name"]
            for item in items
            if any(ref["uid"] == uid for ref in item["metadata"].get("ownerReferences") or [])
        ]
    return [item["metadata"]["name"] for item in await _list(opened, {"labelSelector": selector})]


async def _list(opened: session.Session, query: dict[str, str]) -> list[Document]:
    request = Request("GET", POD.path(opened.within(POD)), query=query)
    items: list[Document] = decode_document((await opened.fetch(request)).body).get("items") or []
    return items


async def _print_one_of_many(opened: session.Session, pod: str, query: dict[str, str]) -> bool:
    """Print one pod's log; what the server refuses for it does not end the others."""
    try:
        await _print(opened, pod, query, f"[{pod}] ")
    except ApiError as error:
        terminal.echo(f"Error from server ({error.reason}): {error.message}", err=True)
        return False
    return True


async def _print(opened: session.Session, pod: str, query: dict[str, str], prefix: str) -> None:
    request = Request("GET", POD.path(opened.within(POD), pod, "log"), query=query)
    response = await opened.fetch(request)
    if response.chunks is None:
        _emit(response.body.splitlines(keepends=True), prefix)
        return
    rest = b""
    async with aclosing(stream.chunks_of(response)) as chunks:
        async for chunk in chunks:
            lines = (rest + chunk).splitlines(keepends=True)
            rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
            _emit(lines, prefix)
    _emit([rest] if rest else [], prefix)


def _emit(lines: list[bytes], prefix: str) -> None:
    for line in lines:
        sys.stdout.buffer.write(prefix.encode() + line)
    sys.stdout.buffer.flush()
