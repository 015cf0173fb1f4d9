"""``grange logs``: print the logs of containers."""

from collections.abc import Callable, Mapping
from contextlib import aclosing

import click
import msgspec

from grange.api.kinds import POD
from grange.api.meta import Document
from grange.api.status import ApiError
from grange.base.tasks import Nursery
from grange.cli import completers, log_stream, options, session, terminal
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
        forms = {pod: _form(pod, many=many, is_json=bool(given["output"])) for pod in pods}
        if len(pods) == 1:
            await _print(opened, pods[0], query, forms[pods[0]])
            return 0
        async with Nursery("logs") as nursery:
            tasks = [
                nursery.start(_print_one_of_many(opened, pod, query, form))
                for pod, form in forms.items()
            ]
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


async def _pods(opened: session.ApiSession, what: str, selector: str) -> list[str]:
    word, _, name = what.partition("/")
    if what and not name:
        return [word]
    if what:
        kind = await opened.kind(word)
        if kind is POD:
            return [name]
        owner: Document = await opened.document(kind, name)
        uid = owner["metadata"]["uid"]
        items = await opened.listed(POD, opened.within(POD))
        return [
            item["metadata"]["name"]
            for item in items
            if any(ref["uid"] == uid for ref in item["metadata"].get("ownerReferences") or [])
        ]
    found = await opened.listed(POD, opened.within(POD), selector=selector)
    return [item["metadata"]["name"] for item in found]


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
    opened: session.ApiSession, pod: str, query: dict[str, str], form: Form
) -> bool:
    """Print one pod's log; what the server refuses for it does not end the others."""
    try:
        await _print(opened, pod, query, form)
    except ApiError as error:
        terminal.echo(f"Error from server ({error.reason}): {error.message}", err=True)
        return False
    return True


async def _print(opened: session.ApiSession, pod: str, query: dict[str, str], form: Form) -> None:
    async with aclosing(log_stream.lines(opened, opened.within(POD), pod, query)) as found:
        async for lines in found:
            terminal.write_bytes(map(form, lines))
