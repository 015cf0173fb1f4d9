"""``grange test rerun``: run sessions again."""

from pathlib import Path

import click

from grange.cli import options, session, shown_errors, testsession_lookup, testsession_view
from grange.cli.command import Command
from grange.cli.durations import parse_duration
from grange.cli.environment import Environment
from grange.cli.printers import documents
from grange.cli.testruns import baseline, run_options, run_plan
from grange.cli.testruns.launch import LaunchOptions, launch
from grange.cli.testruns.run_plan import PlanSettings


@click.command(
    cls=Command,
    examples=("grange test rerun qps-x7k2p", "grange test rerun qps-x7k2p --junit report.xml"),
)
@testsession_lookup.NAMES
@run_options.reports
@options.timeout("0")
@options.output(documents.REPORT)
@options.connected
def command(  # noqa: PLR0913  click hands every option over by name
    env: Environment,
    target: session.ClusterTarget,
    names: tuple[str, ...],
    *,
    junit: Path | None,
    artifacts: Path | None,
    keep: bool,
    fail_on_regression: bool,
    accept_regression: bool,
    baseline_path: Path | None,
    timeout: str,
    output: str,
) -> None:
    """Run the sessions NAME… again, each as a new one with the spec of the old one.

    Exit codes are those of grange test run.
    """
    given = baseline.given(baseline_path)
    run = env.rng.suffix()
    how = LaunchOptions(
        timeout_s=parse_duration(timeout) or None,
        junit=junit,
        artifacts=artifacts,
        fail_on_regression=fail_on_regression,
        accept_regression=accept_regression,
        baseline=given,
        output=output,
    )

    async def verb(opened: session.ApiSession) -> int:
        found = [await testsession_lookup.find(opened, name) for name in dict.fromkeys(names)]
        planned = run_plan.plan(run_plan.fresh(found), PlanSettings(run=run, keep=keep))
        return await launch(opened, planned, how)

    with shown_errors.exiting(testsession_view.INFRASTRUCTURE):
        session.run(env, target, verb)
