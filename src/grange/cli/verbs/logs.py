"""``grange logs``: print the logs of containers."""

from collections.abc import Callable, Mapping
from contextlib import aclosing

import click
import msgspec

from grange.api.kinds import POD
from grange.api.meta import Document
from grange.api.status import ApiError
from grange.base.tasks import Nursery
from grange.cli import completers, log_stream, options, pod_lookup, session, terminal
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.log_stream import log_query

Form = Callable[[bytes], bytes]


@click.command(
    cls=Command,
    examples=(
        "grange logs web-1 -f",
        "grange logs grc/web --since 10m",
    ),
)
@click.argument("what", required=False, default="", shell_complete=completers.pods)
@options.container("the only or first one by default")
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they are written.")
@click.option(
    "-p", "--previous", is_flag=True, help="Print the log of the container's previous run."
)
@click.option("-l", "--selector", default="", help="Label selector of pods, for example app=web.")
@click.option("--tail", type=int, default=-1, help="Only the last N lines.")
@click.option("--since", default="", help="Only lines newer than a duration, for example 30s, 5m.")
@click.option("--timestamps", is_flag=True, help="Put the time before each line.")
@click.option("--prefix", is_flag=True, help="Put the pod before each line.")
@options.output(("json",))
@options.connected
def command(
    env: Environment, target: session.ClusterTarget, what: str, selector: str, **given: object
) -> None:
    """Print the log of POD, of the pods of grc/NAME, or of pods with a label.

    With -o json every line is an object with the pod and the text.
    """
    if bool(what) == bool(selector):
        raise click.UsageError("no pod; name one (or KIND/NAME), or give -l SELECTOR")
    query = _query(given)

    async def verb(opened: session.ApiSession) -> int:
        pods = await _pods(opened, what, selector)
        if not pods:
            terminal.echo("no matching pods", err=True)
            return 1
        many = len(pods) > 1 or bool(given["prefix"])
        wanted = [
            (
                name,
                _of_container(pod, query, quiet=at > 0),
                _form(name, many=many, is_json=bool(given["output"])),
            )
            for at, pod in enumerate(pods)
            for name in [str(pod["metadata"]["name"])]
        ]
        if len(wanted) == 1:
            await _print(opened, *wanted[0])
            return 0
        async with Nursery("logs") as nursery:
            tasks = [nursery.start(_print_one_of_many(opened, *item)) for item in wanted]
        return 0 if all(task.result() for task in tasks) else 1

    session.run(env, target, verb)


def _query(given: Mapping[str, object]) -> dict[str, str]:
    query = log_query(
        tail=int(str(given["tail"])),
        since=str(given["since"]),
        container=str(given["container"]),
    )
    for name in ("follow", "previous", "timestamps"):
        if given[name]:
            query[name] = "true"
    return query


def _of_container(pod: Document, query: Mapping[str, str], *, quiet: bool) -> Mapping[str, str]:
    """The query with the container that is meant where there are several and none is named."""
    if "container" in query or len(pod["spec"]["containers"]) == 1:
        return query
    return {**query, "container": pod_lookup.container_of(pod, "", quiet=quiet)["name"]}


async def _pods(opened: session.ApiSession, what: str, selector: str) -> list[Document]:
    word, _, name = what.partition("/")
    if what and not name:
        return [await opened.document(POD, word)]
    if what:
        kind = await opened.kind(word)
        owner: Document = await opened.document(kind, name)
        if kind is POD:
            return [owner]
        uid = owner["metadata"]["uid"]
        items = await opened.listed(POD, opened.within(POD))
        return [
            item
            for item in items
            if any(ref["uid"] == uid for ref in item["metadata"].get("ownerReferences") or [])
        ]
    return await opened.listed(POD, opened.within(POD), selector=selector)


def _form(pod: str, *, many: bool, is_json: bool) -> Form:
    """How a line of a pod's log is printed."""
    if is_json:

        def as_json(line: bytes) -> bytes:
            text = line.removesuffix(b"\n").decode(errors="replace")
            return msgspec.json.encode({"pod": pod, "line": text}) + b"\n"

        return as_json
    prefix = f"[{pod}] ".encode() if many else b""
    return lambda line: prefix + line


async def _print_one_of_many(
    opened: session.ApiSession, pod: str, query: Mapping[str, str], form: Form
) -> bool:
    """Print one pod's log; what the server refuses for it does not end the others."""
    try:
        await _print(opened, pod, query, form)
    except ApiError as error:
        terminal.echo(f"Error from server ({error.reason}): {error.message}", err=True)
        return False
    return True


async def _print(
    opened: session.ApiSession, pod: str, query: Mapping[str, str], form: Form
) -> None:
    async with aclosing(log_stream.lines(opened, opened.within(POD), pod, query)) as found:
        async for lines in found:
            terminal.write_bytes(map(form, lines))
