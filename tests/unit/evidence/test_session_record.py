"""Records of sessions: what is taken from documents, and how they are stored."""

import msgspec
import pytest
from tests.unit.evidence.session_documents import DRIVER, SERVER, node, session

from grange.api.meta import ObjectMeta
from grange.evidence import session_record
from grange.evidence.session_record import KeptFile, RecordError, SessionRecord


def test_record_has_what_the_session_was() -> None:
    record = session_record.record_of(session(), [node("m1"), node("m0", "drivers"), node("m2")])
    assert (record.namespace, record.name, record.uid) == ("ci", "bench-x7", "u-1")
    assert (record.phase, record.verdict, record.attempts) == ("Succeeded", "Passed", 2)
    assert record.duration_s == 90.5
    assert record.is_finished
    assert [item.name for item in record.components] == ["server", "driver"]
    assert record.driver is not None
    assert (record.driver.image, record.driver.exit_code) == ("driver@sha256:1", 0)
    assert record.driver.env == {"SIZE": "64"}
    assert [(item.name, item.pool, item.kernel) for item in record.nodes] == [
        ("m0", "drivers", "6.1.0"),
        ("m1", "workers", "6.1.0"),
    ]
    assert record.events[0].message == "50 % done"
    assert record.scenario == {"qps": 100}
    assert record.retention_seconds == 7 * 24 * 3600


def test_env_is_that_of_the_main_container() -> None:
    """Of each pod of a component; a value that comes from elsewhere replaces a plain one."""
    secret = {"valueFrom": {"secretKeyRef": {"name": "t", "key": "k"}}}
    containers = [
        {"name": "proxy", "env": [{"name": "PORT", "value": "1"}]},
        {"name": "main", "env": [{"name": "A", "value": "2"}, {"name": "B", **secret}]},
    ]
    given = [{"name": name, "value": "1"} for name in ("A", "B", "C")]
    server = {"count": 2, "env": given, "template": {"spec": {"containers": containers}}}
    document = session(components=[{**SERVER, "name": "server-1"}, DRIVER])
    document["spec"] |= {"servers": [server]}
    components = session_record.record_of(document).components
    assert [item.env for item in components] == [{"A": "2", "C": "1"}, {"SIZE": "64"}]
    del containers[1]
    document["spec"]["servers"] = [server | {"env": []}]
    assert session_record.record_of(document).components[0].env == {"PORT": "1"}


def test_record_of_a_new_session_is_open() -> None:
    document = session()
    document["status"] = {}
    record = session_record.record_of(document)
    assert (record.phase, record.verdict, record.duration_s) == ("Queued", "", 0.0)
    assert not record.is_finished
    assert record.driver is None


def test_duration_counts_from_creation_without_machines() -> None:
    document = session()
    del document["status"]["startTime"]
    assert session_record.record_of(document).duration_s == 150.5


@pytest.mark.parametrize(
    ("name", "generated", "given", "expected"),
    [
        ("bench-x7", "bench-", "", "bench"),
        ("bench-x7", "bench-", "qps", "qps"),
        ("nightly", "", "", "nightly"),
        ("renamed", "bench-", "", "renamed"),
    ],
)
def test_test_name_is_that_without_the_suffix(
    name: str, generated: str, given: str, expected: str
) -> None:
    meta = ObjectMeta(name=name, generate_name=generated)
    assert session_record.name_of_test(meta, given) == expected


@pytest.mark.parametrize(
    ("changed", "failed"),
    [
        ({}, False),
        ({"exitCode": 1}, True),
        ({"health": "Failed"}, True),
        ({"health": "Ready", "exitCode": None}, False),
    ],
)
def test_component_failed_by_health_or_exit_code(changed: dict[str, object], failed: bool) -> None:
    record = session_record.record_of(session(components=[{**DRIVER, **changed}]))
    assert record.components[0].is_failed is failed


def test_files_are_added_to_the_pod_that_wrote_them() -> None:
    log = KeptFile("logs/0/bench-x7-driver/main.log", 12)
    record = session_record.with_files(
        session_record.record_of(session(components=[SERVER, DRIVER])),
        {"bench-x7-driver": [log]},
        {"bench-x7-server": [KeptFile("artifacts/0/server/core", 0, "too large")]},
        {"bench-x7-driver": "ok\n"},
    )
    server, driver = record.components
    assert (driver.logs, driver.tail, driver.artifacts) == ((log,), "ok\n", ())
    assert (server.logs, [item.note for item in server.artifacts]) == ((), ["too large"])


def test_record_is_read_as_it_was_written() -> None:
    record = session_record.record_of(session(), [node("m0")])
    assert session_record.decode(session_record.encode(record)) == record


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"name":3}', b"\xff", b'{"format":2}'])
def test_unreadable_record_is_an_error(raw: bytes) -> None:
    with pytest.raises(RecordError, match="cannot read the record"):
        session_record.decode(raw)


def test_record_tolerates_malformed_times() -> None:
    record = msgspec.structs.replace(SessionRecord(), completion_time="soon", start_time="now")
    assert record.duration_s == 0.0


def test_kept_record_gets_the_end_of_its_session() -> None:
    """It is written while evidence is collected, before the session has ended."""
    now = session_record.record_of(session(), [node("m0")])
    assert now.is_finished
    early = msgspec.structs.replace(now, phase="Collecting", completion_time=None, events=())
    kept = session_record.with_files(
        early, {now.components[0].pod: [KeptFile(path="logs/x", size=1)]}, {}, {}
    )
    ended = session_record.with_end(kept, now)
    assert (ended.phase, ended.completion_time, ended.events) == (
        now.phase,
        now.completion_time,
        now.events,
    )
    assert ended.components == kept.components
    assert ended.duration_s > 0
