"""``grange test run``: sessions from manifests to verdicts, reports and exit codes."""

import json
import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import click
import pytest
from tests.support.controller_world import world
from tests.unit.cli.session_player import (
    URL,
    Player,
    Script,
    manifest,
    planned,
    refuse_first,
    with_evidence,
)

from grange.api.http import Request, Response
from grange.api.kinds import TESTSESSION
from grange.api.meta import Document
from grange.api.status import (
    ApiError,
    Forbidden,
    InternalError,
    NotFound,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
)
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.cli import testsession_lookup
from grange.cli.testruns import (
    execution,
    launch,
    queue_runner,
    report_input,
    run_display,
    run_plan,
    run_report,
    session_writes,
)
from grange.cli.testruns.component_logs import ComponentLogs, ContainerLog
from grange.cli.testruns.kept_evidence import KeptEvidence, NoEvidence
from grange.cli.testruns.launch import LaunchOptions
from grange.cli.testruns.log_files import RunLogFiles
from grange.cli.testruns.queue_runner import Concurrency, QueueRunner
from grange.cli.testruns.report_input import ReportInputError
from grange.cli.testruns.run_display import LiveDisplay, PlainDisplay
from grange.cli.testruns.run_plan import PlanSettings
from grange.cli.testruns.tracked_run import SessionRun
from grange.cli.verbs.test import logs as logs_verb
from grange.evidence import session_record
from grange.evidence.session_record import ComponentRecord, KeptFile, SessionRecord
from grange.sim.api_fixture import Handler


@pytest.fixture
async def there(clock: Clock, rng: Stream, log: Logger) -> AsyncGenerator[Player, None]:
    async with world(clock, rng, log, hands=False, kind=Player) as made:
        assert isinstance(made, Player)
        made.nursery.start(made.play())
        yield made


async def run(there: Player, *manifests: Document, **how: Any) -> int:
    settings = {key: how.pop(key) for key in ("fail_fast", "name") if key in how}
    plan = planned(*manifests, **settings)
    return await launch.launch(there.connect(), plan, LaunchOptions(**how))


@pytest.mark.parametrize(
    ("verdict", "code"), [("Passed", 0), ("Failed", 1), ("Error", 2), ("Cancelled", 130)]
)
async def test_exit_code_and_verdict(
    there: Player, capsys: pytest.CaptureFixture[str], verdict: str, code: int
) -> None:
    there.scripts["qps"] = Script(verdict, log=b"first\nlast 100 %\n")
    assert await run(there, manifest("qps")) == code
    out = capsys.readouterr().out
    assert "[driver] last 100 %\n" in out
    assert f"{verdict.upper()} ts/qps-abcde" in out
    assert ("  | last 100 %\n" in out) is (code > 0)


async def test_logs_and_record_are_written_as_they_come(there: Player, tmp_path: Path) -> None:
    there.scripts["qps"] = Script("Failed", log=b"one\ntwo")
    assert await run(there, manifest("qps"), artifacts=tmp_path / "logs") == 1
    directory = tmp_path / "logs" / "qps-abcde"
    assert (directory / "logs" / "qps-abcde-driver" / "main.log").read_bytes() == b"one\ntwo"
    record = json.loads((directory / "session.json").read_text())
    assert record["verdict"] == "Failed"
    (kept,) = record["components"][0]["logs"]
    assert kept["path"] == "logs/qps-abcde-driver/main.log"


async def test_disk_that_cannot_be_written_ends_no_test(
    there: Player, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "qps-abcde").write_text("a file where the directory would be")
    assert await run(there, manifest("qps"), artifacts=tmp_path) == 0
    assert capsys.readouterr().err.count("not written") == 1


async def test_junit_separates_failures_from_errors(there: Player, tmp_path: Path) -> None:
    there.scripts |= {"bad": Script("Failed"), "broken": Script("Error")}
    sessions = [manifest(name, pool="p") for name in ("good", "bad", "broken")]
    how = {"concurrency": Concurrency(queues={"p": 1}), "junit": tmp_path / "reports"}
    assert await run(there, *sessions, **how) == 2
    suite = ET.parse(tmp_path / "reports" / "p.xml").getroot()[0]  # noqa: S314  our own
    assert suite.get("name") == "p"
    found = {case.get("name"): [item.tag for item in case] for case in suite}
    assert "failure" not in found["good"]
    assert "failure" in found["bad"]
    assert "error" in found["broken"]


async def test_session_that_was_refused_is_an_error(
    there: Player, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there.gate = refuse_first(9, "POST", Forbidden("not yours"))
    assert await run(there, manifest("qps"), junit=tmp_path / "r.xml") == 2
    assert "ERROR qps: not yours" in capsys.readouterr().out
    assert ET.parse(tmp_path / "r.xml").getroot().get("errors") == "1"  # noqa: S314  our own


async def test_creation_without_an_answer_is_repeated_once_done(there: Player) -> None:
    there.answer_gate = refuse_first(1, "POST", ServiceUnavailable("lost"))
    assert await run(there, manifest("qps")) == 0
    assert [item.metadata.name for item in (await there.client.list(TESTSESSION)).items] == [
        "qps-abcde"
    ]


async def test_name_that_is_taken_is_never_adopted(there: Player) -> None:
    await there.client.create(TESTSESSION, manifest("qps"), "default")
    assert await run(there, manifest("qps"), name="qps") == 2


async def test_session_that_is_deleted_while_it_runs_is_an_error(
    there: Player, capsys: pytest.CaptureFixture[str]
) -> None:
    there.scripts["qps"] = Script(runs_s=100.0)

    async def delete() -> None:
        while "qps-abcde" not in there.running:
            await there.clock.sleep(0.1)
        await there.client.delete(TESTSESSION, "qps-abcde", "default")

    there.nursery.start(delete())
    assert await run(there, manifest("qps")) == 2
    assert "it was deleted while running" in capsys.readouterr().out


async def test_log_that_breaks_off_is_continued_without_repetition(
    there: Player, tmp_path: Path
) -> None:
    there.breaks = 2
    there.scripts["qps"] = Script(log=b"a\nb\nlonger line\nend\n", runs_s=5.0)
    assert await run(there, manifest("qps"), artifacts=tmp_path) == 0
    kept = tmp_path / "qps-abcde" / "logs" / "qps-abcde-driver" / "main.log"
    assert kept.read_bytes() == b"a\nb\nlonger line\nend\n"
    assert there.breaks == 0


# --- queues -----------------------------------------------------------------------------------


async def test_queues_run_side_by_side_each_in_order(there: Player) -> None:
    slow = Script(runs_s=2.0)
    there.scripts = dict.fromkeys(("a1", "a2", "a3", "b1", "b2", "b3"), slow)
    sessions = [manifest(name, pool=name[0]) for name in there.scripts]
    started = there.clock.monotonic()
    assert await run(there, *sessions, concurrency=Concurrency(queues={"a": 1, "b": 2})) == 0
    assert there.most == 3
    assert [name for name in there.order if name.startswith("a")] == ["a1", "a2", "a3"]
    assert 6.0 <= there.clock.monotonic() - started < 8.0


async def test_common_concurrency_is_a_sliding_window(there: Player) -> None:
    there.scripts = {"long": Script(runs_s=10.0)}
    names = ["long", *(f"short{at}" for at in range(5))]
    started = there.clock.monotonic()
    assert await run(there, *map(manifest, names), concurrency=Concurrency(total=2)) == 0
    assert there.most == 2
    assert there.clock.monotonic() - started < 12.0


async def test_fail_fast_skips_and_cancels_the_others(
    there: Player, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there.scripts = {"bad": Script("Failed"), "long": Script(runs_s=1000.0)}
    how = {"concurrency": Concurrency(total=2), "junit": tmp_path / "r.xml"}
    sessions = map(manifest, ("bad", "long", "later"))
    assert await run(there, *sessions, fail_fast=True, **how) == 1
    assert there.order == ["bad", "long"]
    out = capsys.readouterr().out
    assert "1 failed, 1 cancelled, 1 skipped" in out
    (suite,) = ET.parse(tmp_path / "r.xml").getroot()  # noqa: S314  our own
    assert suite.get("skipped") == "2"


async def test_timeout_cancels_and_counts_as_infrastructure(there: Player, tmp_path: Path) -> None:
    there.scripts = {"long": Script(runs_s=1000.0)}
    assert await run(there, manifest("long"), timeout_s=30.0, junit=tmp_path / "r.xml") == 2
    assert there.running == {}
    assert ET.parse(tmp_path / "r.xml").getroot().get("errors") == "1"  # noqa: S314  our own


async def test_timeout_ends_the_wait_for_a_silent_server(there: Player) -> None:
    there.scripts = {"long": Script(runs_s=10_000.0)}
    made, (run_,) = runner(there, "long")

    async def fall_silent() -> None:
        await there.until(lambda: _running(there, 1))
        there.gate = lambda request: ServiceUnavailable("no")

    there.nursery.start(fall_silent())
    started = there.clock.monotonic()
    await made.run(30.0)
    assert there.clock.monotonic() - started < 300.0
    assert made.exit_code == 2
    assert made.left == [run_]


@pytest.mark.parametrize("error", [InternalError, Timeout, TooManyRequests, ServiceUnavailable])
async def test_server_that_falters_ends_no_run(
    there: Player, tmp_path: Path, error: type[ApiError]
) -> None:
    there.scripts["qps"] = Script(runs_s=20.0)

    async def falter() -> None:
        await there.until(lambda: _running(there, 1))
        for _ in range(5):
            there.gate = lambda request: error("not now")
            await there.clock.sleep(2.0)
            there.gate = lambda request: None
            await there.clock.sleep(0.7)

    there.nursery.start(falter())
    assert await run(there, manifest("qps"), artifacts=tmp_path) == 0
    kept = tmp_path / "qps-abcde" / "logs" / "qps-abcde-driver" / "main.log"
    assert kept.read_bytes() == b"hello\nbye\n"


def runner(there: Player, *names: str) -> tuple[QueueRunner, list[SessionRun]]:
    connected = there.connect()
    runs = [SessionRun(item) for item in planned(*map(manifest, names))]
    display = PlainDisplay(connected.env, many=True, logs=False)

    async def execute(one: SessionRun) -> None:
        await execution.execute(connected, one, display, RunLogFiles(None))

    return QueueRunner(connected, runs, Concurrency(total=2), execute), runs


async def test_interruption_cancels_and_waits_for_the_end(there: Player) -> None:
    there.scripts = {name: Script(runs_s=1000.0) for name in ("a", "b", "c")}
    made, runs = runner(there, "a", "b", "c")
    async with Nursery("test") as nursery:
        nursery.start(made.run())
        await there.until(lambda: _running(there, 2))
        made.interrupt()
    assert made.exit_code == 130
    assert [one.verdict for one in runs] == ["Cancelled"] * 3
    assert there.running == {}
    assert made.left == []
    assert there.order == ["a", "b"]


async def test_second_interruption_leaves_at_once(there: Player) -> None:
    there.scripts = {"a": Script(runs_s=1000.0)}
    made, _ = runner(there, "a")
    async with Nursery("test") as nursery:
        nursery.start(made.run())
        await there.until(lambda: _running(there, 1))
        made.interrupt()
        made.interrupt()
    assert made.exit_code == 130
    assert [one.name for one in made.left] == ["a-abcde"]
    (line,) = launch.left_lines(made.left)
    assert line == "Left running: a-abcde; end them with `grange test cancel a-abcde`"


async def test_interruption_during_creation_is_no_leak(there: Player) -> None:
    made, (item,) = runner(there, "a")
    there.scripts = {"a": Script(runs_s=1000.0)}

    async def slow(request: Request, server: Handler) -> Response:
        if request.method == "POST":
            await there.clock.sleep(5.0)
        return await server(request)

    there.intercept = slow
    async with Nursery("test") as nursery:
        nursery.start(made.run())
        await there.clock.sleep(1.0)
        made.interrupt()
    assert (made.exit_code, item.verdict, there.running) == (130, "Cancelled", {})


async def _running(there: Player, count: int) -> bool:
    return len(there.running) == count


@pytest.mark.parametrize(
    "options",
    [("0",), ("-1",), ("a=0",), ("a",), ("=1",), ("1", "2"), ("1", "a=1"), ("a=1", "a=2")],
)
def test_malformed_concurrency_is_refused(options: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError):
        queue_runner.parse_concurrency(options)


def test_every_queue_needs_a_concurrency() -> None:
    runs = [SessionRun(item) for item in planned(manifest("a", pool="p"), manifest("b"))]
    with pytest.raises(click.UsageError, match="b: its queue ''"):
        queue_runner.queued(runs, Concurrency(queues={"p": 1}))
    with pytest.raises(click.UsageError, match="no session is in this queue"):
        queue_runner.queued(runs[:1], Concurrency(queues={"p": 1, "q": 1}))
    assert queue_runner.queued(runs, Concurrency(total=3)) == {"": runs}


# --- what is shown ----------------------------------------------------------------------------


def shown(there: Player, count: int, **status: Document) -> list[SessionRun]:
    runs = [SessionRun(item) for item in planned(*(manifest(f"t{at}") for at in range(count)))]
    for item in runs:
        item.document = {**item.planned.document, "status": status.get(item.planned.test, {})}
        item.is_over = item.document["status"].get("phase") in ("Succeeded", "Failed")
    return runs


async def test_full_table_hides_those_that_passed(there: Player) -> None:
    passed = {"phase": "Succeeded", "verdict": "Passed"}
    failed = {"phase": "Failed", "verdict": "Failed"}
    runs = shown(there, 9, t0=failed, **{f"t{at}": passed for at in range(1, 6)})
    env = there.connect().env
    lines = run_display.cells(runs, env, height=9)
    assert [line.split()[0] for line in lines[1:-2]] == ["t0", "t1", "t6", "t7", "t8"]
    assert lines[-1] == "1 failed, 5 passed, 3 queued (4 not shown)"
    assert len(run_display.cells(runs, env)) == 12


async def test_component_without_a_pod_was_not_created(there: Player) -> None:
    components = [{"name": "driver", "role": "driver"}]
    late = {"phase": "Errored", "verdict": "Error", "components": components}
    (item,) = shown(there, 1, t0=late)
    item.is_over = True
    lines = run_report.summary([item], there.connect().env, None)
    assert "  driver: not created" in lines


async def test_board_of_one_session_ends_with_the_drivers_log(there: Player) -> None:
    (item,) = shown(there, 1, t0={"phase": "Running"})
    display = LiveDisplay(there.connect().env, [item])
    source = ContainerLog("driver", "t0-abcde-driver", "main")
    display.output(item, source, [f"line {at}\n".encode() for at in range(20)])
    display.output(item, ContainerLog("server", "s", "main"), [b"from the server\n"])
    lines = display.lines(30)
    assert "  line 19" in lines
    assert "  line 11" not in lines
    assert "from the server" not in "\n".join(lines)


async def test_plain_lines_show_events_once_and_changes_of_the_queue(
    there: Player, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = {"type": "QUEUE", "time": "2030-01-01T00:00:01.5Z", "message": "waits"}
    (item,) = shown(there, 1, t0={"phase": "Queued", "position": 3, "events": [queue]})
    display = PlainDisplay(there.connect().env, many=False, logs=True)
    assert item.document is not None
    for position in (3, 3, 2):
        item.document["status"]["position"] = position
        display.updated(item)
    found = [line.split("  ", 1)[1] for line in capsys.readouterr().err.splitlines()[1:]]
    assert found == ["QUEUE  waits", "WAIT  position 3", "WAIT  position 2"]


# --- sessions that were run -------------------------------------------------------------------


async def test_rerun_is_a_fresh_session_of_the_same_test(there: Player) -> None:
    first = planned(manifest("qps", cancel="Collect"), values={"spec.scenario": 7})
    await launch.launch(there.connect(), first, LaunchOptions())
    found = await testsession_lookup.find(there.connect(), "qps-abcde")
    (again,) = run_plan.plan(run_plan.fresh([found]), PlanSettings(run="vwxyz"))
    assert (again.name, again.test) == ("qps-vwxyz", "qps")
    assert again.parameters == {"spec.scenario": 7}
    assert again.document["spec"]["scenario"] == 7
    assert "cancel" not in again.document["spec"]
    assert "status" not in again.document
    assert await launch.launch(there.connect(), [again], LaunchOptions()) == 0
    both = run_plan.plan(run_plan.fresh([found, found]), PlanSettings(run="12345"))
    assert [item.name for item in both] == ["qps-12345", "qps-r2-12345"]


async def test_logs_are_followed_to_the_end_of_the_session(
    there: Player, capsys: pytest.CaptureFixture[str]
) -> None:
    there.scripts["qps"] = Script("Failed", log=b"one\ntwo")
    (item,) = planned(manifest("qps"))
    created = await session_writes.create(there.connect(), item.document)
    sink = logs_verb.Prefixed(color=False).write
    logs = ComponentLogs(there.connect(), created, sink)
    assert await logs_verb.follow_to_end(there.connect(), created, logs) == 1
    assert capsys.readouterr().out == "[driver] one\n[driver] two\n"


async def finished(there: Player, url: str = URL, verdict: str = "Passed") -> Document:
    there.scripts["qps"] = Script(verdict, more={"evidence": {"url": url}})
    (item,) = planned(manifest("qps"))
    await launch.launch(there.connect(), [item], LaunchOptions())
    return await testsession_lookup.find(there.connect(), "qps-abcde")


async def test_following_an_ended_session_gives_its_verdict(there: Player) -> None:
    found = await finished(there, verdict="Failed")
    opened = with_evidence(there)
    seen: list[bytes] = []

    def sink(source: ContainerLog, lines: Sequence[bytes]) -> None:
        seen.extend(lines)

    assert await logs_verb.print_kept(opened, found, sink, lambda _: True, verdict=True) == 1
    assert seen == [b"one\n", b"two\n", b"serving\n"]


async def test_logs_of_pods_that_are_gone_are_read_from_the_evidence(
    there: Player, capsys: pytest.CaptureFixture[str]
) -> None:
    found = await finished(there)
    capsys.readouterr()
    sink = logs_verb.Prefixed(color=False).write
    opened = with_evidence(there)
    assert await logs_verb.print_kept(opened, found, sink, lambda source: True) == 0
    assert capsys.readouterr().out == "[driver] one\n[driver] two\n[server-0] serving\n"
    only = await logs_verb.print_kept(opened, found, sink, lambda s: s.component == "driver", 1)
    assert only == 0
    assert capsys.readouterr().out == "[driver] two\n"


@pytest.mark.parametrize(
    ("url", "access"),
    [
        ("", {}),
        (URL.replace("https", "http"), {}),
        (URL, {"ca_pem": b""}),
        (URL, {"insecure": True}),
    ],
)
async def test_token_is_sent_to_certified_services_only(
    there: Player, url: str, access: Document, capsys: pytest.CaptureFixture[str]
) -> None:
    found = await finished(there, url)
    opened = with_evidence(there, **access)
    with pytest.raises(NoEvidence):
        KeptEvidence(opened, found)
    nothing = await logs_verb.print_kept(opened, found, lambda *_: None, lambda source: True)
    assert nothing == 1
    assert "its pods are gone" in capsys.readouterr().err


async def test_artifacts_are_copied_into_the_directory_only(there: Player, tmp_path: Path) -> None:
    there.scripts["qps"] = Script(more={"evidence": {"url": URL}})
    target = tmp_path / "kept"
    how = LaunchOptions(artifacts=target)
    assert await launch.launch(with_evidence(there), planned(manifest("qps")), how) == 0
    root = target / "qps-abcde"
    assert (root / "artifacts" / "1" / "driver" / "a" / "result.json").read_bytes() == b"{}"
    assert (os.listdir(tmp_path), os.listdir(target)) == (["kept"], ["qps-abcde"])


async def test_log_of_a_pod_that_went_unread_is_copied(
    there: Player, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A driver that ends at once: its pod may be gone before its log was asked for."""

    def gone(request: Request) -> ApiError | None:
        return NotFound("no such pod") if request.path.endswith("/log") else None

    there.scripts["qps"] = Script(more={"evidence": {"url": URL}})
    there.gate = gone
    how = LaunchOptions(artifacts=tmp_path)
    assert await launch.launch(with_evidence(there), planned(manifest("qps")), how) == 0
    assert "[driver] one\n[driver] two\n" in capsys.readouterr().out
    root = tmp_path / "qps-abcde"
    record = json.loads((root / "session.json").read_text())
    (kept,) = record["components"][0]["logs"]
    assert (root / kept["path"]).read_bytes() == b"one\ntwo\n"


def test_record_never_leads_out_of_its_directory(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    directory = tmp_path / "qps"
    directory.mkdir()
    kept = (KeptFile(path="../secret"), KeptFile(path=str(tmp_path / "secret")))
    record = SessionRecord(name="qps", components=(ComponentRecord(name="driver", logs=kept),))
    (directory / "session.json").write_bytes(session_record.encode(record))
    assert report_input.from_directory(directory).logs == {}
    with pytest.raises(ReportInputError, match="no-such"):
        report_input.from_directory(tmp_path / "no-such")
