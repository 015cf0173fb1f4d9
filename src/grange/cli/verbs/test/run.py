"""``grange test run``: run test sessions to their verdicts."""

from pathlib import Path

import click

from grange.cli import manifests, options, session, shown_errors, terminal, testsession_view
from grange.cli.command import Command
from grange.cli.durations import parse_duration
from grange.cli.environment import Environment
from grange.cli.printers import documents
from grange.cli.testruns import (
    baseline,
    parameters,
    queue_runner,
    run_options,
    run_plan,
    session_writes,
)
from grange.cli.testruns.launch import LaunchOptions, launch
from grange.cli.testruns.run_plan import PlanSettings


@click.command(
    cls=Command,
    examples=(
        "grange test run qps.yaml --junit report.xml --artifacts logs",
        "grange test run qps.yaml --matrix spec.clients[0].count=1,2,4 --fail-fast",
        "grange test run tests/ --concurrency small=3 --concurrency large=1 --junit reports",
    ),
)
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILE…")
@click.option(
    "--set",
    "values",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a field (spec.driver.env[SIZE]=64) or a parameter ${{ KEY }} (repeat).",
)
@click.option(
    "--matrix",
    "axes",
    multiple=True,
    metavar="KEY=A,B",
    help="Run each combination of values (repeat); KEY as of --set.",
)
@click.option("--fail-fast", is_flag=True, help="The first bad end cancels all sessions.")
@click.option("--name", default="", help="Name of the only session, without a suffix.")
@click.option(
    "--concurrency",
    multiple=True,
    metavar="[QUEUE=]N",
    help="Sessions at a time: in all, or of each queue (repeat).",
)
@click.option(
    "--queue-annotation",
    default=run_plan.QUEUE_ANNOTATION,
    show_default=True,
    help="Annotation of manifests that holds their queue.",
)
@run_options.reports
@options.timeout("0")
@options.output(documents.REPORT)
@options.connected
def command(  # noqa: PLR0913  click hands every option over by name
    env: Environment,
    target: session.ClusterTarget,
    *,
    files: tuple[str, ...],
    values: tuple[str, ...],
    axes: tuple[str, ...],
    fail_fast: bool,
    name: str,
    concurrency: tuple[str, ...],
    queue_annotation: str,
    junit: Path | None,
    artifacts: Path | None,
    keep: bool,
    fail_on_regression: bool,
    accept_regression: bool,
    baseline_path: Path | None,
    timeout: str,
    output: str,
) -> None:
    """Run the test sessions of files or directories, and wait for their verdicts.

    Each run is a new session with a suffix. Other objects in the files are created unless they
    exist. The exit code is 0 if all passed, 1 if one failed, 2 after an infrastructure error and 130
    after Ctrl-C, which cancels and waits for clean-up; a second Ctrl-C leaves at once. The worst
    counts. With a timeout, what is not finished by then is cancelled and counts as 2.
    """
    given = baseline.given(baseline_path)
    settings = PlanSettings(
        values={
            key: parameters.parse_value(value) for key, value in map(parameters.parse_pair, values)
        },
        axes=axes,
        fail_fast=fail_fast,
        name=name,
        keep=keep,
        queue_annotation=queue_annotation,
        run=env.rng.suffix(),
    )
    how = LaunchOptions(
        concurrency=queue_runner.parse_concurrency(concurrency),
        timeout_s=parse_duration(timeout) or None,
        junit=junit,
        artifacts=artifacts,
        fail_on_regression=fail_on_regression,
        accept_regression=accept_regression,
        baseline=given,
        output=output,
    )

    async def verb(opened: session.ApiSession) -> int:
        for document in others:
            kind = await opened.kind_of(document)
            terminal.echo(
                await session_writes.create_unless_there(opened, kind, document), err=True
            )
        return await launch(opened, planned, how)

    with shown_errors.exiting(testsession_view.INFRASTRUCTURE):
        wanted = manifests.read(files)
        planned = run_plan.plan(wanted, settings)
        others = [document for document in wanted if not run_plan.is_session(document)]
        session.run(env, target, verb)
