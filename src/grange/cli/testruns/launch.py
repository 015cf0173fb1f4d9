"""A run as the verbs start it: display, runner, reports and exit code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grange.api.kinds.testsession import ACCEPTED_ANNOTATION, REGRESSED_ANNOTATION
from grange.api.status import ApiError
from grange.cli import terminal
from grange.cli.printers import documents
from grange.cli.session import ApiSession
from grange.cli.testruns import execution, run_report, session_writes
from grange.cli.testruns.baseline import Baseline
from grange.cli.testruns.earlier_runs import EarlierRuns
from grange.cli.testruns.log_files import RunLogFiles
from grange.cli.testruns.queue_runner import EVERYTHING, Concurrency, QueueRunner
from grange.cli.testruns.run_display import LiveDisplay, PlainDisplay
from grange.cli.testruns.run_plan import PlannedSession
from grange.cli.testruns.tracked_run import SessionRun
from grange.evidence import session_record, session_report


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """How sessions are run and what is written about them.

    Attributes:
        concurrency: how many at a time.
        timeout_s: seconds after which they are cancelled; None: no limit.
        junit: file or directory of JUnit XML.
        artifacts: directory of logs and records.
        fail_on_regression: a figure that is worse than in earlier runs fails a session.
        accept_regression: no figure does, and one that is worse is what later runs are compared with.
        baseline: figures to compare with instead of those of earlier runs; None: there are none.
        output: format of the outcome on standard output; empty: text.
    """

    concurrency: Concurrency = EVERYTHING
    timeout_s: float | None = None
    junit: Path | None = None
    artifacts: Path | None = None
    fail_on_regression: bool = False
    accept_regression: bool = False
    baseline: Baseline | None = None
    output: str = ""


async def launch(
    opened: ApiSession, planned: Sequence[PlannedSession], settings: LaunchOptions
) -> int:
    """Run the sessions and report; the exit code.

    Raises:
        GrangeError: a directory or file cannot be written.
    """
    env = opened.env
    fails = settings.fail_on_regression and not settings.accept_regression
    runs = [SessionRun(item, fails_on_regression=fails) for item in planned]
    files = RunLogFiles(settings.artifacts)
    display: LiveDisplay | PlainDisplay
    if env.interactive:
        display = LiveDisplay(env, runs)
    else:
        display = PlainDisplay(env, many=len(runs) > 1, logs=not settings.output)

    async def execute(run: SessionRun) -> None:
        await execution.execute(opened, run, display, files)

    runner = QueueRunner(opened, runs, settings.concurrency, execute)
    with env.interrupts(runner.interrupt):
        async with display.shown():
            await runner.run(settings.timeout_s)
    await _compare(opened, runs, settings.baseline)
    await _mark(opened, runs, accept=settings.accept_regression)
    code = runner.exit_code
    if settings.output:
        terminal.write(documents.report(settings.output, run_report.document(runs, code)))
    else:
        terminal.echo("\n".join(run_report.summary(runs, env, settings.artifacts)))
    if settings.junit is not None:
        suites = run_report.suites(runner.queues, settings.artifacts)
        for path in run_report.write_junit(settings.junit, suites):
            terminal.echo(f"wrote {path}", err=True)
    for line in left_lines(runner.left):
        terminal.echo(line, err=True)
    return code


async def _compare(
    opened: ApiSession, runs: Sequence[SessionRun], baseline: Baseline | None
) -> None:
    """Compare the figures that drivers reported with the baseline, or with those of earlier runs."""
    before = EarlierRuns(opened)
    printed: set[str] = set()
    for run in runs:
        if run.session is None or not run.session.status.metrics:
            continue
        record = session_record.record_of(run.document or {})
        given: Mapping[str, Sequence[float]] = {}
        earlier: Mapping[str, Sequence[float]] = {}
        if baseline is not None:
            given = baseline.of(record.test_name)
            absence = baseline.absence(record.test_name)
            if absence and absence not in printed:
                printed.add(absence)
                terminal.echo(absence, err=True)
        if any(metric.name not in given for metric in record.metrics):
            try:
                earlier = await before.figures(record)
            except ApiError as error:
                terminal.echo(f"figures are not compared: {error.message}", err=True)
                continue
        run.checks = session_report.compare(record, earlier, given)


async def _mark(opened: ApiSession, runs: Sequence[SessionRun], *, accept: bool) -> None:
    """Have later runs know which figures are no measure for them, or are the new one."""
    for run in runs:
        if run.document is None:
            continue
        names = run.worse if accept or run.regressions else []
        key = ACCEPTED_ANNOTATION if accept else REGRESSED_ANNOTATION
        try:
            if names:
                await session_writes.annotate(opened, run.document, key, ",".join(names))
        except ApiError as error:
            effect = "later runs are not compared with this one alone"
            if not accept:
                effect = "later runs are compared with these figures, too"
            terminal.echo(f"{run.name}: {effect}: {error.message}", err=True)


def left_lines(left: Sequence[SessionRun]) -> list[str]:
    """What goes on in the cluster without this process, and how to end it."""
    ending = " ".join(run.name for run in left if run.is_cancelled)
    going_on = " ".join(run.name for run in left if not run.is_cancelled)
    found = []
    if ending:
        text = f"Left while they are cancelled: {ending}; `grange test cancel {ending} --now` skips"
        found.append(f"{text} the collection of their logs")
    if going_on:
        found.append(f"Left running: {going_on}; end them with `grange test cancel {going_on}`")
    return found
