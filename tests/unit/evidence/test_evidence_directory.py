"""The directory of evidence: limits, links, damaged files and retention."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from tests.unit.evidence.session_documents import session

from grange.evidence import session_record
from grange.evidence.artifact_store import ArtifactStore, ArtifactTooLarge
from grange.evidence.evidence_directory import EvidenceDirectory, EvidenceError, EvidenceLimits
from grange.evidence.evidence_paths import EvidenceKey, EvidencePathError
from grange.evidence.session_record import KeptFile, RecordError, SessionRecord

KEY = EvidenceKey("ci", "bench-x7", "u-1")
END = datetime(2026, 11, 21, 10, 2, 30, 500_000, tzinfo=UTC)
RECORD = session_record.record_of(session())


def directory(tmp_path: Path, **limits: int) -> EvidenceDirectory:
    return EvidenceDirectory(tmp_path / "evidence", EvidenceLimits(**{"free_bytes": 0, **limits}))


def put(store: ArtifactStore, path: str, content: bytes, limit: int = 1000) -> None:
    with store.open(0, "driver", path, limit=limit, size=len(content)) as file:
        file.write(content)
        file.commit()


def test_record_is_found_by_its_uid(tmp_path: Path) -> None:
    kept = directory(tmp_path)
    assert (kept.find("u-1"), [*kept.records()]) == (None, [])
    kept.write_record(KEY, RECORD)
    found = kept.find("u-1")
    assert found == kept.path(KEY)
    assert kept.read_record(found) == RECORD
    assert [*kept.records()] == [RECORD]
    assert found.stat().st_mode & 0o777 == 0o700
    with pytest.raises(EvidencePathError):
        kept.find("../u-1")


def test_damaged_record_is_left_out_of_listings(tmp_path: Path) -> None:
    kept = directory(tmp_path)
    kept.write_record(KEY, RECORD)
    (kept.path(KEY) / "session.json").write_bytes(b"{")
    assert [*kept.records()] == []
    with pytest.raises(RecordError):
        kept.read_record(kept.path(KEY))
    with pytest.raises(EvidenceError, match="cannot read the record in ci: No such file"):
        kept.read_record(kept.root / "ci")


def test_artifacts_are_whole_or_absent(tmp_path: Path) -> None:
    kept = directory(tmp_path)
    store = kept.artifact_store(KEY)
    put(store, "out/result.json", b"{}")
    with store.open(0, "driver", "lost", limit=1000) as file:
        file.write(b"half")
        assert [item.path for item in store.listed(0, "driver")] == [
            "artifacts/0/driver/out/result.json"
        ]
    assert store.is_idle
    put(store, "out/result.json", b'{"a":1}')
    assert store.listed(0, "driver") == [KeptFile("artifacts/0/driver/out/result.json", 7)]
    with kept.open_file(kept.path(KEY), "artifacts/0/driver/out/result.json") as found:
        assert found.read() == b'{"a":1}'
    assert [item.path for item in kept.files(kept.path(KEY))] == [
        "artifacts/0/driver/out/result.json"
    ]


def test_huge_artifact_is_named_and_not_written(tmp_path: Path) -> None:
    store = directory(tmp_path).artifact_store(KEY)
    size = 10 * 1024**3
    with pytest.raises(ArtifactTooLarge, match=r"'core' is not kept: it has 10737418240 bytes"):
        store.open(0, "driver", "core", limit=1000, size=size)
    (lost,) = store.listed(0, "driver")
    assert (lost.path, lost.size) == ("core", size)
    assert lost.note == f"it has {size} bytes, but 1000 of the 1000 bytes of its component are left"
    assert store.is_idle


def test_artifact_that_hides_its_size_is_stopped(tmp_path: Path) -> None:
    store = directory(tmp_path).artifact_store(KEY)
    with store.open(0, "driver", "core", limit=1000) as file:
        for _ in range(10):
            file.write(b"x" * 100)
        with pytest.raises(ArtifactTooLarge, match="more than 1000 bytes"):
            file.write(b"x")
    assert [item.path for item in store.listed(0, "driver")] == ["core"]
    put(store, "small", b"x" * 1000)  # what was given up counts no longer


def test_artifacts_side_by_side_share_the_limit(tmp_path: Path) -> None:
    store = directory(tmp_path).artifact_store(KEY)
    put(store, "first", b"x" * 400)
    with (
        store.open(0, "driver", "a", limit=1000) as first,
        store.open(0, "driver", "b", limit=1000) as second,
    ):
        first.write(b"x" * 300)
        second.write(b"x" * 300)
        with pytest.raises(ArtifactTooLarge):
            first.write(b"x")
        second.commit()
    put(store, "other", b"x" * 300)
    with store.open(0, "server", "own", limit=1000) as file:  # a component has its own limit
        file.write(b"x" * 1000)
        file.commit()


def test_number_of_artifacts_is_limited(tmp_path: Path) -> None:
    store = directory(tmp_path, artifacts=2).artifact_store(KEY)
    put(store, "a", b"")
    put(store, "b", b"")
    put(store, "b", b"again")
    with pytest.raises(ArtifactTooLarge, match="the component has 2 artifacts"):
        store.open(0, "driver", "c", limit=1000)


def test_space_on_the_disk_is_left_free(tmp_path: Path) -> None:
    store = directory(tmp_path, free_bytes=1 << 62).artifact_store(KEY)
    with pytest.raises(ArtifactTooLarge, match="the disk has 0 bytes to spare"):
        store.open(0, "driver", "a", limit=1000, size=1)
    with store.open(0, "driver", "b", limit=1000) as file, pytest.raises(ArtifactTooLarge):
        file.write(b"x")


def test_names_of_skipped_artifacts_are_limited(tmp_path: Path) -> None:
    store = directory(tmp_path).artifact_store(KEY)
    for number in range(300):
        store.skip(0, "driver", KeptFile(f"a{number}", 1, "too large"))
    assert len(store.listed(0, "driver")) == 200


def test_links_are_neither_read_nor_listed(tmp_path: Path) -> None:
    kept = directory(tmp_path)
    put(kept.artifact_store(KEY), "real", b"x")
    place = kept.path(KEY) / "artifacts/0/driver"
    secret = tmp_path / "secret"
    secret.write_text("key")
    (place / "link").symlink_to(secret)
    (place / "folder").symlink_to(tmp_path)
    os.mkfifo(place / "pipe")
    assert [item.path for item in kept.artifact_store(KEY).listed(0, "driver")] == [
        "artifacts/0/driver/real"
    ]
    for path in ("link", "folder/secret", "pipe"):
        with pytest.raises(EvidenceError, match="No such file"):
            kept.open_file(kept.path(KEY), f"artifacts/0/driver/{path}")
    with pytest.raises(EvidencePathError):
        kept.open_file(kept.path(KEY), "../../../secret")


@pytest.mark.parametrize(("seconds", "expected"), [(-1, 0), (0, 1)])
def test_evidence_is_deleted_when_its_time_is_over(
    tmp_path: Path, seconds: int, expected: int
) -> None:
    kept = directory(tmp_path)
    kept.write_record(KEY, RECORD)
    kept.open_log(KEY, 0, "pod", "main").feed(b"2026-11-21T10:00:00Z hello\n")
    now = END + timedelta(days=7, seconds=seconds)
    assert len(kept.prune(now)) == expected
    assert kept.path(KEY).exists() is not bool(expected)
    assert (kept.root / "ci").exists() is not bool(expected)


def test_evidence_of_running_sessions_is_not_deleted(tmp_path: Path) -> None:
    kept = directory(tmp_path)
    kept.open_log(KEY, 0, "pod", "main")
    later = datetime.now(UTC) + timedelta(days=8)
    assert kept.prune(later, active={"u-1"}) == []
    assert kept.prune(datetime.now(UTC)) == []
    assert kept.prune(later) == [kept.path(KEY)]


def test_open_record_counts_from_its_last_change(tmp_path: Path) -> None:
    kept = directory(tmp_path)
    kept.write_record(KEY, SessionRecord(uid="u-1", retention_seconds=3600))
    assert kept.prune(datetime.now(UTC)) == []
    assert kept.prune(datetime.now(UTC) + timedelta(hours=2)) == [kept.path(KEY)]


def test_full_disk_is_an_error_with_the_cause(tmp_path: Path) -> None:
    (tmp_path / "evidence").write_text("a file")
    kept = directory(tmp_path)
    with pytest.raises(EvidenceError, match=r"cannot write the record of bench-x7: .*; check"):
        kept.write_record(KEY, msgspec.structs.replace(RECORD))
    with pytest.raises(EvidenceError, match="cannot write the log of pod/main"):
        kept.open_log(KEY, 0, "pod", "main")
