"""The collector of evidence: logs over breaks, artifacts, results, and what goes wrong."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.log_api import LogApi

from grange.api import timestamps
from grange.api.http import ADMIN
from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import TestSession
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Inline
from grange.base.tasks import Nursery
from grange.client.client import Client
from grange.client.transports.inprocess import InProcess
from grange.controllers.testsession.evidence_collector import CollectedEvidence
from grange.controllers.testsession.evidence_recorder import EvidenceTools, key_of
from grange.controllers.testsession.log_collector import LogCollector
from grange.evidence import log_file
from grange.evidence.evidence_directory import EvidenceDirectory, EvidenceLimits
from grange.evidence.metric_series import MetricPoint, MetricSeries
from grange.evidence.session_record import SessionRecord

UID = "0b1c"
LABELS = {"grange.dev/test-session-uid": UID, "grange.dev/session-attempt": "0"}


def session_document(**evidence: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "ci", "name": "bench", "uid": UID},
        "spec": {
            "driver": {"image": "driver"},
            "servers": [{"image": "server"}],
            "evidence": evidence,
        },
        "status": {
            "phase": "Collecting",
            "verdict": "Passed",
            "attempt": 0,
            "components": [
                {"name": "server", "role": "server", "pod": "bench-server", "node": "m1"},
                {"name": "driver", "role": "driver", "pod": "bench-driver", "node": "m0"},
            ],
        },
    }


def pod(name: str, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "ci",
            "name": name,
            "uid": f"uid-{name}",
            "labels": {**LABELS, **labels},
        },
        "spec": {"containers": [{"name": "main"}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "main", "state": {"running": {}}}],
        },
    }


class PodDirectories:
    """Artifacts of pods on this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.is_local = True

    def directory(self, pod_uid: str) -> Path | None:
        return self.root / pod_uid if self.is_local else None

    def write(self, pod: str, name: str, content: str | bytes) -> None:
        path = self.root / f"uid-{pod}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


class CollectorWorld:
    """A session with a driver and a server, and a collector."""

    def __init__(self, root: Path, clock: Clock, log: Logger) -> None:
        self.clock = clock
        self.api = LogApi(pods={name: pod(name) for name in ("bench-driver", "bench-server")})
        self.directory = EvidenceDirectory(root / "evidence", EvidenceLimits(free_bytes=0))
        self.series = MetricSeries(root / "series.db")
        self.artifacts = PodDirectories(root / "pods")
        client = Client(InProcess(self.api.handle, ADMIN), clock=clock)
        tools = EvidenceTools(
            *(client, self.directory, self.series, clock, log, Inline(), self.artifacts)
        )
        self.collector = LogCollector(tools)
        self.document = session_document()

    @property
    def session(self) -> TestSession:
        return msgspec.convert(self.document, TestSession)

    def start(self, *names: str) -> None:
        for name in names or tuple(self.api.pods):
            self.collector.start(self.session, msgspec.convert(self.api.pods[name], Pod))

    async def collect(self, seconds: float = 60) -> CollectedEvidence:
        deadline = self.clock.now() + timedelta(seconds=seconds)
        return await self.collector.collect(self.session, deadline)

    def log(self, name: str) -> list[str]:
        path = self.directory.path(key_of(self.session)) / "logs" / "0" / f"{name}.log"
        return log_file.without_times(path.read_bytes()).decode().splitlines()

    def record(self) -> SessionRecord:
        return self.directory.read_record(self.directory.path(key_of(self.session)))


@asynccontextmanager
async def running(root: Path, clock: Clock, log: Logger) -> AsyncGenerator[CollectorWorld, None]:
    world = CollectorWorld(root, clock, log)
    async with Nursery("collector") as nursery:
        nursery.start(world.collector.run())
        await clock.sleep(0.01)
        yield world
        nursery.cancel()


async def test_logs_are_kept_as_they_are_written(tmp_path: Path, clock: Clock, log: Logger) -> None:
    async with running(tmp_path, clock, log) as world:
        world.api.write("bench-driver/main", "one")
        world.api.write("bench-server/main", "listening")
        world.start()
        world.start()  # repeated calls change nothing
        await clock.sleep(1)
        assert world.log("bench-driver/main") == ["one"]
        world.api.write("bench-driver/main", "two")
        await clock.sleep(1)
        assert world.log("bench-driver/main") == ["one", "two"]
        assert world.log("bench-server/main") == ["listening"]
        assert world.api.streams == 2


async def test_container_that_starts_late_is_followed(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    async with running(tmp_path, clock, log) as world:
        second = {"name": "sidecar", "state": {"waiting": {"reason": "ContainerCreating"}}}
        world.api.pods["bench-driver"]["spec"]["containers"].append({"name": "sidecar"})
        world.api.pods["bench-driver"]["status"]["containerStatuses"].append(second)
        world.start("bench-driver")
        await clock.sleep(20)
        second["state"] = {"running": {}}
        world.api.write("bench-driver/sidecar", "late")
        await clock.sleep(10)
        assert world.log("bench-driver/sidecar") == ["late"]


async def test_broken_streams_lose_and_repeat_nothing(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    async with running(tmp_path, clock, log) as world:
        world.api.breaks = 4
        world.api.write("bench-driver/main", *(f"line {number}" for number in range(25)))
        world.start("bench-driver")
        await clock.sleep(10)
        world.api.write("bench-driver/main", "end")
        world.api.end("bench-driver")
        found = await world.collect()
        assert world.log("bench-driver/main") == [*(f"line {n}" for n in range(25)), "end"]
        assert found.status.complete


async def test_log_of_a_running_container_is_kept_so_far(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    async with running(tmp_path, clock, log) as world:
        world.api.breaks = 5
        lines = [f"line {number}" for number in range(25)]
        world.api.write("bench-driver/main", *lines)
        world.api.write("bench-server/main", "listening")
        unfinished = world.api.logs["bench-server/main"]
        unfinished.append(b"2026-01-01T00:00:01.5Z > ")
        world.start()
        found = await world.collect()
        assert found.status.complete
        assert world.log("bench-driver/main") == lines
        assert world.log("bench-server/main") == ["listening"]


async def test_running_container_without_a_log_holds_nothing_up(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    async with running(tmp_path, clock, log) as world:
        world.start()
        begin = clock.monotonic()
        assert (await world.collect()).status.complete
        assert clock.monotonic() - begin < 1


async def test_log_of_a_deleted_pod_is_kept(tmp_path: Path, clock: Clock, log: Logger) -> None:
    async with running(tmp_path, clock, log) as world:
        world.api.write("bench-server/main", "dying")
        world.start("bench-server")
        await clock.sleep(1)
        del world.api.pods["bench-server"]
        world.api.change()
        await clock.sleep(10)
        assert world.log("bench-server/main") == ["dying"]
        found = await world.collect()
        assert found.status.complete


async def test_end_of_logs_is_awaited_in_time(tmp_path: Path, clock: Clock, log: Logger) -> None:
    async with running(tmp_path, clock, log) as world:
        world.api.write("bench-driver/main", "done")
        world.api.write("bench-server/main", "serving")
        world.start()
        world.api.end("bench-driver")
        begin = clock.monotonic()
        found = await world.collect()
        assert clock.monotonic() - begin < 2  # the server runs on and holds nothing up
        assert found.status.complete
        driver = world.record().driver
        assert driver is not None
        assert driver.tail == "done\n"
        assert [item.path for item in driver.logs] == ["logs/0/bench-driver/main.log"]


async def test_deadline_ends_what_hangs(tmp_path: Path, clock: Clock, log: Logger) -> None:
    async with running(tmp_path, clock, log) as world:
        world.start()
        await clock.sleep(1)
        world.api.end("bench-driver")  # its log is never served
        begin = clock.monotonic()
        found = await world.collect(10)
        assert 7 < clock.monotonic() - begin < 10
        assert not found.status.complete
        assert "was not complete when its time was over" in found.status.message
        assert world.record().verdict == "Passed"


async def test_metrics_are_read_from_the_log(tmp_path: Path, clock: Clock, log: Logger) -> None:
    metrics = [{"name": "p99", "jsonPath": "{.p99}", "unit": "ms"}]
    async with running(tmp_path, clock, log) as world:
        world.document = session_document(metrics=metrics)
        world.api.write("bench-driver/main", "warming up", '{"p99": 2.5}', "bye")
        world.api.end("bench-driver")
        world.start()
        found = await world.collect()
        assert [(item.name, item.value) for item in found.metrics] == [("p99", 2.5)]
        assert world.record().result == {"p99": 2.5}
        (point,) = world.series.last("ci", "bench", "p99", 5)
        assert (point.value, point.uid, point.verdict) == (2.5, UID, "Passed")
        assert await world.collect() == found  # repeated by a later process
        assert len(world.series.last("ci", "bench", "p99", 5)) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"p99": 1}', ""),
        (b"garbage 100 %", "cannot read artifact 'out.json' of driver"),
        (None, "cannot read artifacts/0/driver/out.json: No such file"),
        (b'{"p50": 1}', "metric p99: {.p99}: it selects 0 values"),
    ],
)
async def test_result_is_an_artifact_of_the_driver(
    tmp_path: Path, clock: Clock, log: Logger, content: bytes | None, message: str
) -> None:
    async with running(tmp_path, clock, log) as world:
        world.document = session_document(
            result="out.json", metrics=[{"name": "p99", "jsonPath": "{.p99}"}]
        )
        if content is not None:
            world.artifacts.write("bench-driver", "out.json", content)
        found = await world.collect()
        assert message in found.status.message
        assert found.status.complete is not bool(message)
        assert [item.value for item in found.metrics] == ([] if message else [1.0])
        assert found.failure == ""


async def test_artifacts_are_kept_by_pattern(tmp_path: Path, clock: Clock, log: Logger) -> None:
    async with running(tmp_path, clock, log) as world:
        world.document["spec"]["driver"]["artifacts"] = ["*.txt", "missing/*"]
        for name in ("a.txt", "b.bin", "deep/c.txt"):
            world.artifacts.write("bench-driver", name, name)
            world.artifacts.write("bench-server", name, name)
        found = await world.collect()
        kept = {
            item.name: [file.path for file in item.artifacts] for item in world.record().components
        }
        assert kept == {
            "driver": ["artifacts/0/driver/a.txt"],
            "server": [f"artifacts/0/server/{name}" for name in ("a.txt", "b.bin", "deep/c.txt")],
        }
        assert found.status.message == "driver: no artifact matches 'missing/*'"


async def test_hostile_artifacts_are_named_and_not_kept(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    async with running(tmp_path, clock, log) as world:
        world.document = session_document(maxArtifactBytes=10)
        world.artifacts.write("bench-driver", "ok", b"x" * 10)
        world.artifacts.write("bench-driver", "z-core", b"")
        core = world.artifacts.root / "uid-bench-driver" / "z-core"
        with core.open("wb") as file:
            file.truncate(10 * 1024**3)  # takes no space
        (core.parent / "key").symlink_to("/etc/passwd")
        found = await world.collect()
        assert "artifact 'key' is not kept: it is a symbolic link" in found.status.message
        assert "'z-core' is not kept: it has 10737418240 bytes" in found.status.message
        driver = world.record().driver
        assert driver is not None
        assert [(item.path, item.size) for item in driver.artifacts] == [
            ("artifacts/0/driver/ok", 10),
            ("key", 0),
            ("z-core", 10 * 1024**3),
        ]


async def test_artifact_that_cannot_be_read_is_named(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    async with running(tmp_path, clock, log) as world:
        world.artifacts.root = Path("/proc")
        world.api.pods["bench-driver"]["metadata"]["uid"] = str(os.getpid())
        world.document = session_document()
        world.document["spec"]["driver"]["artifacts"] = ["comm", "mem"]
        found = await world.collect()
        assert "artifact 'mem' is not kept: Input/output error" in found.status.message
        driver = world.record().driver
        assert driver is not None
        assert [item.path for item in driver.artifacts] == ["artifacts/0/driver/comm", "mem"]


@pytest.mark.parametrize("file", ["artifacts", "session.json"])
async def test_disk_that_refuses_writes_costs_no_figures(
    file: str, tmp_path: Path, clock: Clock, log: Logger
) -> None:
    """A file where a directory should be, and a directory where the record should be."""
    async with running(tmp_path, clock, log) as world:
        world.document = session_document(metrics=[{"name": "p99", "jsonPath": "{.p99}"}])
        world.artifacts.write("bench-driver", "a", "1")
        world.artifacts.write("bench-server", "b", "1")
        place = world.directory.path(key_of(world.session)) / file
        if file == "artifacts":
            place.parent.mkdir(parents=True)
            place.touch()
        else:
            place.mkdir(parents=True)
        world.api.write("bench-driver/main", '{"p99": 7}')
        world.api.end("bench-driver")
        world.api.end("bench-server")
        world.start()
        found = await world.collect()
        assert [(item.name, item.value) for item in found.metrics] == [("p99", 7)]
        assert not found.status.complete
        assert "check the directory of evidence and its disk" in found.status.message
        assert bool(found.failure) is (file == "session.json")


async def test_artifacts_elsewhere_must_be_uploaded(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    async with running(tmp_path, clock, log) as world:
        world.artifacts.is_local = False
        assert (await world.collect()).status.complete
        world.document["spec"]["driver"]["artifacts"] = ["*"]
        found = await world.collect()
        assert "its artifacts are on another machine; it must upload them" in found.status.message
        store = world.directory.artifact_store(key_of(world.session))
        with store.open(0, "driver", "a", limit=10) as file:
            file.commit()
        assert (await world.collect()).status.complete


async def test_server_that_is_away_changes_no_verdict(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    async with running(tmp_path, clock, log) as world:
        world.api.fail = True
        found = await world.collect()
        assert "the pods cannot be listed: the server is away" in found.status.message
        assert world.record().verdict == "Passed"


async def test_damaged_series_is_a_failure_with_metrics(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    async with running(tmp_path, clock, log) as world:
        world.document = session_document(metrics=[{"name": "p99", "jsonPath": "{.p99}"}])
        world.api.write("bench-driver/main", '{"p99": 1}')
        world.api.end("bench-driver")
        world.start()
        (tmp_path / "series.db").write_bytes(b"garbage" * 1000)
        found = await world.collect()
        assert "file is not a database" in found.failure
        assert [item.value for item in found.metrics] == [1.0]


async def test_record_follows_the_session_to_its_end(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    async with running(tmp_path, clock, log) as world:
        world.api.write("bench-server/main", "serving")
        world.api.write("bench-driver/main", "done")
        world.start()
        world.api.end("bench-driver")
        await world.collect()
        world.api.write("bench-server/main", "terminated")
        world.api.pods.clear()
        world.api.change()
        world.document["status"].update(phase="Succeeded", completionTime="2026-01-01T00:00:20Z")
        world.collector.forget(world.session)
        await clock.sleep(11)
        record = world.record()
        assert (record.phase, record.completion_time) == ("Succeeded", "2026-01-01T00:00:20Z")
        assert record.components[0].tail == "serving\nterminated\n"


async def test_stream_that_never_ends_is_ended_with_the_session(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    async with running(tmp_path, clock, log) as world:
        world.api.write("bench-server/main", "serving")
        world.start("bench-server")
        await world.collect()
        world.document["status"]["phase"] = "Failed"
        world.collector.forget(world.session)
        await clock.sleep(11)
        assert world.record().phase == "Failed"
        world.api.write("bench-server/main", "more")
        await clock.sleep(5)
        assert world.log("bench-server/main") == ["serving"]


async def test_figures_are_deleted_after_a_year(tmp_path: Path, clock: Clock, log: Logger) -> None:
    async with running(tmp_path, clock, log) as world:
        ages = {"new": 399, "old": 401}
        times = {uid: timestamps.shift(clock.now(), -days * 86_400) for uid, days in ages.items()}
        world.series.append(
            MetricPoint("ci", "bench", "p99", uid, timestamps.rfc3339_micro(time), 1.0)
            for uid, time in times.items()
        )
        await clock.sleep(301)
        assert [point.uid for point in world.series.last("ci", "bench", "p99", 5)] == ["new"]


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_figures_of_a_failed_comparison_are_marked(
    tmp_path: Path, clock: Clock, log: Logger, *, is_deleted: bool
) -> None:
    async with running(tmp_path, clock, log) as world:
        document = world.document
        document["spec"]["evidence"] = {"metrics": [{"name": "p99", "jsonPath": "{.p99}"}]}
        world.api.write("bench-driver/main", '{"p99": 2.5}')
        world.api.end("bench-driver")
        world.start("bench-driver")
        found = await world.collect()
        document["status"]["metrics"] = msgspec.to_builtins(found.metrics)
        document["status"]["phase"] = "Succeeded"
        document["metadata"]["annotations"] = {"grange.dev/regressed-metrics": "p99"}
        if is_deleted:
            world.collector.forget(world.session)
            await clock.sleep(1)
        else:
            world.api.sessions["bench"] = document
            await clock.sleep(301)
        (point,) = world.series.last("ci", "bench", "p99", 5)
        assert point.attributes["level"] == "Regressed"


async def test_old_evidence_is_deleted_and_records_completed(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    async with running(tmp_path, clock, log) as world:
        world.document = session_document(retentionSeconds=900)
        world.api.sessions["bench"] = world.document
        await world.collect()
        await clock.sleep(301)
        assert world.record().phase == "Collecting"
        assert world.record().has_last_attempt
        world.document["status"].update(
            phase="Succeeded",
            attempt=1,  # of another process
            completionTime=clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        await clock.sleep(301)
        record = world.record()
        assert (record.phase, record.attempts) == ("Succeeded", 2)
        assert not record.has_last_attempt
        await clock.sleep(1201)
        assert world.directory.find(UID) is None
