"""``grange test logs``: the logs of a session's components."""

from collections.abc import Sequence

import click
import msgspec

from grange.api.meta import Document
from grange.base import controls
from grange.cli import options, session, terminal, testsession_lookup, testsession_view
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.log_stream import log_query
from grange.cli.testruns import following
from grange.cli.testruns.component_logs import ComponentLogs, ContainerLog, Selected, Sink
from grange.cli.testruns.kept_evidence import KeptEvidence, NoEvidence

_COLORS = ("cyan", "yellow", "green", "magenta", "blue", "bright_red")


@click.command(
    cls=Command,
    examples=(
        "grange test logs qps-x7k2p -f",
        "grange test logs qps-x7k2p --component driver --tail 50",
    ),
)
@testsession_lookup.NAME
@click.option("--component", default="", help="Only this one, for example driver or client-0.")
@click.option("-c", "--container", default="", help="Only this container; all by default.")
@click.option("-f", "--follow", is_flag=True, help="Until the session ends, also of new pods.")
@click.option("--tail", type=int, default=-1, help="Only the last N lines of each container.")
@click.option("--since", default="", help="Only lines newer than a duration, for example 30s, 5m.")
@options.output(("json",))
@options.connected
def command(  # noqa: PLR0913  click hands every option over by name
    env: Environment,
    target: session.ClusterTarget,
    name: str,
    *,
    component: str,
    container: str,
    follow: bool,
    tail: int,
    since: str,
    output: str,
) -> None:
    """Print the logs of all components of NAME, each line after [COMPONENT].

    With -o json every line is an object with component, pod, container and line. With -f the exit
    code is that of the verdict.
    """
    query = log_query(tail=tail, since=since)

    def selected(source: ContainerLog) -> bool:
        return (not component or source.component == component) and (
            not container or source.container == container
        )

    async def verb(opened: session.ApiSession) -> int:
        found = await testsession_lookup.find(opened, name)
        sink: Sink = _json_sink if output else Prefixed(color=env.color).write
        logs = ComponentLogs(
            opened,
            found,
            sink,
            query=query,
            selected=selected,
        )
        if testsession_view.is_finished(testsession_view.view(found)):
            code = await print_kept(opened, found, sink, selected, tail, verdict=follow)
        elif follow:
            code = await follow_to_end(opened, found, logs)
        else:
            code = await print_once(opened, found, logs)
        for text in logs.lost:
            terminal.echo(f"no log of {text}", err=True)
        return code

    session.run(env, target, verb)


async def print_once(opened: session.ApiSession, found: Document, logs: ComponentLogs) -> int:
    """Print what there is; 1 where that is nothing, or not all."""
    pods = await testsession_lookup.pods_of(opened, found)
    if await logs.print_once(pods):
        return 1 if logs.lost else 0
    terminal.echo(_nothing(found), err=True)
    return 1


async def print_kept(
    opened: session.ApiSession,
    found: Document,
    sink: Sink,
    selected: Selected,
    tail: int = -1,
    *,
    verdict: bool = False,
) -> int:
    """Print what the session service has kept of a session that has ended.

    Returns:
        1 where that is nothing, else 0, or the exit code of the verdict if that is asked for.
    """
    try:
        evidence = KeptEvidence(opened, found)
    except NoEvidence as error:
        terminal.echo(f"its pods are gone: {error}", err=True)
        return 1
    count = 0
    try:
        for source, path in await evidence.logs():
            if selected(source):
                lines = await evidence.lines(path)
                sink(source, lines[max(0, len(lines) - tail) :] if tail >= 0 else lines)
                count += 1
    finally:
        await evidence.close()
    if not count:
        terminal.echo("no matching log was kept", err=True)
        return 1
    return testsession_view.exit_code(testsession_view.view(found)) if verdict else 0


def _nothing(found: Document) -> str:
    shown = testsession_view.view(found)
    if not testsession_view.is_finished(shown):
        phase = testsession_view.phase(shown).lower()
        return f"no matching container has started: the session is {phase}"
    return (
        "its pods are gone, and with them their logs; `grange test run --artifacts DIR` keeps them"
    )


async def follow_to_end(opened: session.ApiSession, found: Document, logs: ComponentLogs) -> int:
    """Print until the session has ended; the exit code of its verdict."""
    latest = [found]

    def see(seen: Document | None) -> bool:
        if seen is None:
            return True
        latest[0] = seen
        return testsession_view.is_finished(testsession_view.view(seen))

    await following.follow(opened, found, logs, see)
    return testsession_view.exit_code(testsession_view.view(latest[0]))


class Prefixed:
    """Prints lines after their component, each component in one color."""

    def __init__(self, *, color: bool) -> None:
        self._color = color
        self._prefixes: dict[str, bytes] = {}

    def write(self, source: ContainerLog, lines: Sequence[bytes]) -> None:
        """Print lines."""
        prefix = self._prefixes.get(source.label)
        if prefix is None:
            text = f"[{controls.escape(source.label, lines=False)}]"
            if self._color:
                text = click.style(text, fg=_COLORS[len(self._prefixes) % len(_COLORS)])
            prefix = self._prefixes[source.label] = f"{text} ".encode()
        ends = (b"" if line.endswith(b"\n") else b"\n" for line in lines)
        terminal.write_bytes(prefix + line + end for line, end in zip(lines, ends, strict=True))


def _json_sink(source: ContainerLog, lines: Sequence[bytes]) -> None:
    known = {"component": source.component, "pod": source.pod, "container": source.container}
    texts = (line.removesuffix(b"\n").decode(errors="replace") for line in lines)
    terminal.write_bytes(msgspec.json.encode({**known, "line": text}) + b"\n" for text in texts)
