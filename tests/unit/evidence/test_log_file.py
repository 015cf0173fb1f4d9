"""Logs as they are kept: resumed exactly, and of bounded size."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from grange.evidence import log_file
from grange.evidence.log_file import LogFile

LIMIT = 1024 * 1024


def lines(*texts: str, second: int = 0) -> bytes:
    return b"".join(
        f"2026-11-21T10:00:{second:02}.{number:09}Z {text}\n".encode()
        for number, text in enumerate(texts)
    )


def written(path: Path) -> list[str]:
    return log_file.without_times(path.read_bytes()).decode().splitlines()


def test_pieces_become_whole_lines(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "main.log", LIMIT)
    data = lines("one", "two", "three")
    log.feed(data[:10])
    assert log.size == 0
    log.feed(data[10:-3])
    assert written(log.path) == ["one", "two"]
    log.feed(data[-3:-1])
    log.finish()
    assert log.path.read_bytes() == data
    assert [log.tail(size) for size in (100, 10, 6, 9, 3)] == [
        b"one\ntwo\nthree\n",
        *(b"two\nthree\n", b"three\n", b"three\n", b"ee\n"),
    ]


@pytest.mark.parametrize("cut", range(0, 140, 7))
def test_broken_stream_is_resumed_exactly(tmp_path: Path, cut: int) -> None:
    stamp = "2026-11-21T10:00:01.5Z"
    data = lines("a", "b") + f"{stamp} c\n{stamp} c\n{stamp} d\n".encode()
    path = tmp_path / "main.log"
    log = LogFile(path, LIMIT)
    log.feed(data[:cut])
    for restarted in (False, True):  # the stream broke, or the process ended
        log = LogFile(path, LIMIT) if restarted else log
        log.resume()
        log.feed(data[max(0, data.find(log.since[:19].encode())) :])
    log.finish()
    assert path.read_bytes() == data


def test_times_with_short_fractions_are_ordered() -> None:
    stamps = [b"2026-11-21T10:00:01.5Z", b"2026-11-21T10:00:01.05Z", b"2026-11-21T10:00:01Z"]
    assert sorted(stamps, key=log_file.sort_key) == [*reversed(stamps)]


def test_clock_that_goes_back_loses_no_line(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "main.log", LIMIT)
    log.feed(lines("later", second=9) + lines("earlier"))
    assert written(log.path) == ["later", "earlier"]


def test_half_a_line_of_an_ended_process_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "main.log"
    data = lines("one", "two")
    path.write_bytes(data[:-4])
    log = LogFile(path, LIMIT)
    log.resume()
    log.feed(data)
    assert path.read_bytes() == data


@pytest.mark.parametrize("reopened", [False, True])
def test_large_log_keeps_its_beginning_and_end(tmp_path: Path, reopened: bool) -> None:
    path = tmp_path / "main.log"
    log = LogFile(path, 4000)
    for number in range(1000):
        log.feed(f"2026-11-21T10:{number // 60:02}:{number % 60:02}Z line {number}\n".encode())
        assert log.size <= 4000
        if reopened and number % 50 == 0:
            log = LogFile(path, 4000)
            log.resume()
    assert log.tail(20).endswith(b"line 999\n")
    log.finish()
    found = written(path)
    assert found[:2] == ["line 0", "line 1"]
    assert found[-1] == "line 999"
    (mark,) = [text for text in found if "bytes are not kept" in text]
    kept = [text for text in found if text != mark]
    dropped = 1000 - len(kept)
    assert dropped > 800
    assert mark == f"… {log.dropped} bytes are not kept …"
    assert [*tmp_path.iterdir()] == [path]


def test_endless_line_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "main.log"
    log = LogFile(path, 100 * LIMIT)
    log.feed(b"2026-11-21T10:00:00Z ")
    for _ in range(50):
        log.feed(b"x" * 100_000)
    assert path.stat().st_size > 3 * LIMIT
    log.resume()
    log.feed(b"2026-11-21T10:00:00Z " + b"x" * 5_000_000 + b"\nend\n")
    log.finish()
    text = b"".join(log_file.without_times(path.read_bytes()).split(b"\n"))
    assert text.count(b"x") == 5_000_000


def test_one_line_beyond_the_limit_is_cut(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "main.log", 1000)
    log.feed(lines("x" * 5000, "end"))
    log.finish()
    assert log.path.stat().st_size <= 1100
    assert written(log.path)[-1] == "end"


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(8, 400))
def test_any_stream_is_kept_within_the_limit(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], limit: int
) -> None:
    log = LogFile(tmp_path_factory.mktemp("log") / "main.log", limit)
    for piece in pieces:
        log.feed(piece)
        assert log.size <= max(limit, 8)
    log.finish()
    assert len(log.tail(50)) <= 50
