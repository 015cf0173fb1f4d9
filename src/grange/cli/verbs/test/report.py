"""``grange test report`` and ``open``: one HTML page about a session."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import msgspec

from grange.api.status import ApiError
from grange.base.errors import GrangeError
from grange.cli import options, session, terminal, testsession_lookup
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.printers import documents
from grange.cli.testruns import baseline, report_input
from grange.cli.testruns.baseline import Baseline
from grange.cli.testruns.earlier_runs import EarlierRuns
from grange.cli.testruns.report_input import ReportInput
from grange.evidence import session_report


class ReportError(GrangeError):
    """The page cannot be written; the message names the file and the cause."""


_FROM = click.option(
    "--from",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of grange test run --artifacts with the session's logs.",
)


@click.command(
    cls=Command,
    examples=(
        "grange test report qps-x7k2p",
        "grange test report qps-x7k2p --from logs --file report.html",
        "grange test report qps-x7k2p --baseline baseline.json",
    ),
)
@testsession_lookup.NAME
@click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write it; NAME.html by default.",
)
@_FROM
@baseline.OPTION
@options.output(documents.REPORT)
@options.connected
def report(
    env: Environment,
    target: session.ClusterTarget,
    name: str,
    file: Path | None,
    directory: Path | None,
    baseline_path: Path | None,
    output: str,
) -> None:
    """Write one HTML page about NAME: timeline, components, logs, figures against earlier runs.

    The page needs nothing but a browser. With -o the record of the session is printed instead.
    """
    found: list[ReportInput] = []
    given = baseline.given(baseline_path)
    pages: list[bytes] = []

    async def verb(opened: session.ApiSession) -> int:
        found.append(await _evidence(opened, name, directory))
        if output:
            record = msgspec.to_builtins(found[0].record)
            terminal.write(documents.report(output, record))
        else:
            pages.append(await _page(opened, found[0], given))
        return 0

    session.run(env, target, verb)
    for page in pages:
        path = file or Path(f"{found[0].record.name}.html")
        _write(path, page)
        terminal.echo(f"wrote {path}")


@click.command(cls=Command, examples=("grange test open qps-x7k2p",))
@testsession_lookup.NAME
@_FROM
@options.connected
def open_(
    env: Environment, target: session.ClusterTarget, name: str, directory: Path | None
) -> None:
    """Open the page about NAME in the browser."""
    pages: list[bytes] = []

    async def verb(opened: session.ApiSession) -> int:
        pages.append(await _page(opened, await _evidence(opened, name, directory)))
        return 0

    session.run(env, target, verb)
    path = Path(tempfile.mkdtemp(prefix="grange-")) / "session.html"
    _write(path, pages[0])
    if click.launch(path.as_uri()):
        raise ReportError(f"no browser could be started; open {path}")
    terminal.echo(f"opened {path}")


async def _evidence(opened: session.ApiSession, name: str, directory: Path | None) -> ReportInput:
    if directory is not None:
        plain = name.rpartition("/")[2]
        return report_input.from_directory(directory / plain)
    found = await testsession_lookup.find(opened, name)
    return await report_input.from_cluster(opened, found)


async def _page(
    opened: session.ApiSession, evidence: ReportInput, given: Baseline | None = None
) -> bytes:
    record = evidence.record
    try:
        history = await EarlierRuns(opened).figures(record)
    except ApiError as error:
        history = {}
        terminal.echo(f"no figures of earlier runs: {error.message}", err=True)
    figures: Mapping[str, Sequence[float]] = {}
    if given is not None:
        figures = given.of(record.test_name)
        if absence := given.absence(record.test_name):
            terminal.echo(absence, err=True)
    return session_report.render(record, history=history, baseline=figures, logs=evidence.logs)


def _write(path: Path, page: bytes) -> None:
    try:
        path.write_bytes(page)
    except OSError as error:
        raise ReportError(f"{path}: not written: {error.strerror}") from error
