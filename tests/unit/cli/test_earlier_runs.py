"""Figures of test sessions against those of earlier runs, and of a run that was given."""

import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import click
import pytest
from click.testing import CliRunner
from tests.support.controller_world import world
from tests.unit.cli.session_player import (
    URL,
    Player,
    Script,
    manifest,
    planned,
    series_of,
    with_evidence,
)

from grange.api.meta import Document
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli import testsession_lookup
from grange.cli.main import group
from grange.cli.testruns import baseline, launch, report_input, run_plan
from grange.cli.testruns.baseline import BaselineError
from grange.cli.testruns.earlier_runs import EarlierRuns
from grange.cli.testruns.launch import LaunchOptions
from grange.cli.testruns.run_plan import PlanSettings
from grange.evidence import session_record, session_report


@pytest.fixture
async def there(clock: Clock, rng: Stream, log: Logger) -> AsyncGenerator[Player, None]:
    async with world(clock, rng, log, hands=False, kind=Player) as made:
        assert isinstance(made, Player)
        made.nursery.start(made.play())
        yield made


async def test_report_has_logs_and_figures_of_earlier_runs(there: Player, tmp_path: Path) -> None:
    for at, (run_id, value) in enumerate([("aaaaa", 10.0), ("bbbbb", 12.0), ("ccccc", 50.0)]):
        more: Document = {
            "metrics": [{"name": "p99", "value": value}],
            "completionTime": f"2030-01-01T00:00:0{at}Z",
        }
        there.scripts["qps"] = Script(log=b"<b>not bold</b>\n", more=more)
        plan = run_plan.plan([manifest("qps")], PlanSettings(run=run_id))
        await launch.launch(there.connect(), plan, LaunchOptions(artifacts=tmp_path))
    found = await testsession_lookup.find(there.connect(), "qps-ccccc")
    evidence = await report_input.from_cluster(there.connect(), found)
    earlier = await EarlierRuns(there.connect()).figures(evidence.record)
    assert earlier == {"p99": [10.0, 12.0]}
    assert evidence.logs == {"logs/qps-ccccc-driver/main.log": "<b>not bold</b>\n"}
    page = session_report.render(evidence.record, history=earlier, logs=evidence.logs).decode()
    assert "&lt;b&gt;not bold" in page
    assert "<b>not bold" not in page
    kept = report_input.from_directory(tmp_path / "qps-ccccc")
    assert kept.logs == evidence.logs
    assert kept.record.metrics == evidence.record.metrics


@pytest.mark.parametrize(("fails", "code"), [(False, 0), (True, 1)])
async def test_figure_that_is_worse_fails_where_that_is_wanted(
    there: Player, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, fails: bool, code: int
) -> None:
    how: Document = {"fail_on_regression": fails, "junit": tmp_path / "r.xml"}
    codes = []
    for at in range(12):
        value = 100.0 + at % 3 if at < 11 else 300.0
        more: Document = {
            "metrics": [{"name": "p99", "value": value, "unit": "ms", "better": "Lower"}],
            "completionTime": f"2030-01-01T00:00:{at:02}Z",
        }
        there.scripts["qps"] = Script(more=more)
        plan = run_plan.plan([manifest("qps")], PlanSettings(run=f"run{at:02}"))
        codes.append(await launch.launch(there.connect(), plan, LaunchOptions(**how)))
    assert codes == [*[0] * 11, code]
    out = capsys.readouterr().out
    assert "  p99 300 ms  Worse: " in out
    assert ("FAILED ts/qps-run11" in out) is fails
    root = ET.parse(tmp_path / "r.xml").getroot()  # noqa: S314  our own
    assert root.get("failures") == str(code)


def figure(value: float, at: int = 12, **more: Any) -> Script:
    """A session that reports a latency and ends in a given second."""
    return Script(
        more={
            "metrics": [{"name": "p99", "value": value, "unit": "ms", "better": "Lower"}],
            "completionTime": f"2030-01-01T00:00:{at:02}Z",
            **more,
        }
    )


async def test_run_that_failed_for_a_figure_is_no_baseline(there: Player) -> None:
    worse = [100.0 + at % 3 for at in range(8)] + [300.0] * 4
    codes = []
    for at, value in enumerate(worse):
        there.scripts["qps"] = figure(value, at)
        plan = run_plan.plan([manifest("qps")], PlanSettings(run=f"run{at:02}"))
        how = LaunchOptions(fail_on_regression=True)
        codes.append(await launch.launch(there.connect(), plan, how))
    assert codes == [*[0] * 8, *[1] * 4]
    last = await testsession_lookup.find(there.connect(), "qps-run11")
    assert last["metadata"]["annotations"]["grange.dev/regressed-metrics"] == "p99"
    figures = await EarlierRuns(there.connect()).figures(session_record.record_of(last))
    assert figures == {"p99": worse[:8]}


async def test_regression_that_is_accepted_begins_a_new_level(there: Player) -> None:
    values = [100.0 + at % 3 for at in range(8)] + [300.0, 301.0]
    for at, value in enumerate(values):
        there.scripts["qps"] = figure(value, at)
        plan = run_plan.plan([manifest("qps")], PlanSettings(run=f"run{at:02}"))
        how = LaunchOptions(fail_on_regression=True, accept_regression=at == 8)
        assert await launch.launch(there.connect(), plan, how) == 0
    last = await testsession_lookup.find(there.connect(), "qps-run09")
    figures = await EarlierRuns(there.connect()).figures(session_record.record_of(last))
    assert figures == {"p99": [300.0]}


async def test_marks_of_deleted_sessions_count(there: Player) -> None:
    there.scripts["qps"] = figure(10.0, evidence={"url": URL})
    await launch.launch(there.connect(), planned(manifest("qps")), LaunchOptions())
    [name] = there.scripts
    found = await testsession_lookup.find(there.connect(), planned(manifest(name))[0].name)
    record = session_record.record_of(found)
    runs = (("a", 1.0, ""), ("b", 2.0, "New"), ("c", 3.0, "Regressed"), ("d", 2.5, ""))
    service = series_of(
        *((uid, f"2030-01-01T00:00:0{at}.5Z", value) for at, (uid, value, _) in enumerate(runs)),
        levels={uid: level for uid, _, level in runs},
    )
    earlier = await EarlierRuns(with_evidence(there, service)).figures(record)
    assert earlier == {"p99": [2.0, 2.5]}


async def test_figures_of_deleted_sessions_are_compared(
    there: Player, capsys: pytest.CaptureFixture[str]
) -> None:
    there.scripts["qps"] = figure(300.0, evidence={"url": URL})
    before = [(f"u{at}", f"2030-01-01T00:00:{at:02}.5Z", 100.0 + at % 3) for at in range(11)]
    opened = with_evidence(there, series_of(*before))
    how = LaunchOptions(fail_on_regression=True)
    assert await launch.launch(opened, planned(manifest("qps")), how) == 1
    found = capsys.readouterr()
    assert "  p99 300 ms  Worse: 300 against 101 in 11 runs" in found.out
    assert "not compared" not in found.err


async def test_each_earlier_run_counts_once(there: Player) -> None:
    for at, run_id in enumerate(("aaaaa", "bbbbb", "ccccc")):
        there.scripts["qps"] = figure(10.0 + at, at + 1, evidence={"url": URL})
        await launch.launch(
            there.connect(),
            run_plan.plan([manifest("qps")], PlanSettings(run=run_id)),
            LaunchOptions(),
        )
    documents = [
        await testsession_lookup.find(there.connect(), f"qps-{run_id}")
        for run_id in ("aaaaa", "bbbbb", "ccccc")
    ]
    uids = [document["metadata"]["uid"] for document in documents]
    service = series_of(
        ("deleted", "2030-01-01T00:00:00.250000Z", 9.0),
        (uids[0], "2030-01-01T00:00:00.900000Z", 10.0),
        (uids[2], "2030-01-01T00:00:02.900000Z", 12.0),
        ("later", "2030-01-01T00:00:04.000000Z", 13.0),
    )
    record = session_record.record_of(documents[2])
    runs = EarlierRuns(with_evidence(there, service))
    assert await runs.figures(record) == {"p99": [9.0, 10.0, 11.0]}


async def test_figures_that_are_there_are_compared_without_series(
    there: Player, capsys: pytest.CaptureFixture[str]
) -> None:
    there.scripts["qps"] = figure(10.0, evidence={"url": URL})
    await launch.launch(
        with_evidence(there, series_of(("x", "2030-01-01T00:00:00Z", 1.0), verdict="Failed")),
        planned(manifest("qps")),
        LaunchOptions(),
    )
    there.scripts["qps"] = figure(11.0, 13, evidence={"url": URL})
    plan = run_plan.plan([manifest("qps")], PlanSettings(run="later"))
    await launch.launch(with_evidence(there), plan, LaunchOptions())
    found = capsys.readouterr()
    assert "p99 11 ms  NotEnoughRuns: 2 runs are too few" in found.out
    assert found.err.count("figures of deleted sessions are not compared: ") == 1


@pytest.mark.parametrize(
    ("kept", "value", "code"),
    [
        *(("record", 300.0, 1), ("record", 105.0, 0), ("run", 300.0, 1), ("run", 99.0, 0)),
        ("other", 300.0, 0),
    ],
)
async def test_given_baseline_decides(
    there: Player,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kept: str,
    value: float,
    code: int,
) -> None:
    """By the record or the output of one earlier run; a file about other tests is named."""
    there.scripts["qps"] = there.scripts["other"] = figure(100.0)
    test = "other" if kept == "other" else "qps"
    how = LaunchOptions(artifacts=tmp_path, output="json")
    await launch.launch(there.connect(), planned(manifest(test)), how)
    file = tmp_path / f"{test}-abcde" / "session.json"
    if kept == "run":
        file = tmp_path / "run.json"
        file.write_text(capsys.readouterr().out)
    there.scripts["qps"] = figure(value, 13)
    plan = run_plan.plan([manifest("qps")], PlanSettings(run="later"))
    how = LaunchOptions(fail_on_regression=True, baseline=baseline.read(file))
    capsys.readouterr()
    assert await launch.launch(there.connect(), plan, how) == code
    found = capsys.readouterr()
    if kept == "other":
        absent = f"--baseline {file} has no figures of test qps, only of other"
        assert found.err.count(absent) == 1
        assert "NotEnoughRuns" in found.out
    else:
        assert f"p99 {value:g} ms  {'Worse' if code else 'Unchanged'}: {value:g} against 100" in (
            found.out
        )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read: No such file"),
        (b"{", "is neither a record nor the output of a run"),
        (b"[]", "is neither a record nor the output of a run"),
        (b'{"format": 1, "testName": "qps"}', "has no figures; give session.json"),
        (b'{"format": 9, "testName": "qps"}', "has format 9, this version reads up to 1"),
    ],
)
def test_baseline_that_cannot_be_used_is_named(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    file = tmp_path / "baseline.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BaselineError, match=re.escape(f"{file}: ") + why):
        baseline.read(file)


@pytest.mark.parametrize("verb", ["run", "rerun", "report"])
def test_unusable_baseline_is_wrong_usage(tmp_path: Path, verb: str) -> None:
    """Before anything is run or read."""
    file = tmp_path / "absent.json"
    words = ["test", verb, "qps", "--baseline", str(file)]
    outcome = CliRunner().invoke(group({}, "0"), words, obj=object(), standalone_mode=False)
    assert isinstance(outcome.exception, click.BadParameter)
    assert f"{file}: cannot be read: No such file or directory" in outcome.exception.message
