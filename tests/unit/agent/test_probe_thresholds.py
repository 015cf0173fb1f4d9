"""Probes: thresholds and times (pure), and what a request looks like."""

import re

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from grange.agent import probe_answer
from grange.agent.probe_answer import Answer
from grange.agent.probe_thresholds import Kind, Record
from grange.agent.probe_types import http_get
from grange.api.kinds.pod import Container, HTTPGetAction, Probe

YES = Answer(ok=True)
NO = Answer(ok=False, message="refused")


def probe(**fields: int) -> Probe:
    return msgspec.convert(fields, Probe)


def record(kind: Kind = Kind.READINESS, *, fast_s: float = 0.1, **fields: int) -> Record:
    return Record(kind, probe(**fields), fast_s=fast_s)


def test_one_success_is_enough_by_default() -> None:
    found = record()
    assert found.take(YES, 0) is True
    assert found.passing is True
    assert found.take(YES, 10) is False


def test_failures_in_a_row_make_a_verdict() -> None:
    found = record(periodSeconds=10)
    assert [found.take(NO, now) for now in (0, 10, 20, 30)] == [False, False, True, False]
    assert (found.passing, found.failures, found.message) == (False, 4, "refused")


def test_a_success_between_starts_the_count_again() -> None:
    found = record(periodSeconds=10)
    for now, answer in enumerate([NO, NO, YES, NO, NO]):
        found.take(answer, now * 10)
    assert found.passing is True
    assert found.failures == 2


def test_several_successes_may_be_asked_for() -> None:
    found = record(successThreshold=3)
    assert [found.take(YES, now) for now in range(3)] == [False, False, True]


def test_failures_in_quick_succession_count_once_a_period() -> None:
    found = record(Kind.STARTUP, periodSeconds=10, failureThreshold=2)
    for tenth in range(90):
        found.take(NO, tenth / 10)
    assert (found.failures, found.passing) == (1, None)
    found.take(NO, 9.5)
    assert found.passing is False


@pytest.mark.parametrize("kind", [Kind.STARTUP, Kind.READINESS])
def test_waits_grow_to_the_period_until_the_first_success(kind: Kind) -> None:
    found = record(kind, periodSeconds=5)
    waits: list[float] = []
    for _ in range(25):
        found.take(NO, sum(waits))
        waits.append(found.next_wait())
    assert waits[0] == pytest.approx(0.1)
    assert waits == sorted(waits)
    assert waits[-1] == 5
    found.take(YES, sum(waits))
    assert found.next_wait() == 5


def test_liveness_and_delayed_probes_keep_to_their_period() -> None:
    assert record(Kind.LIVENESS, periodSeconds=5).next_wait() == 5
    late = record(periodSeconds=5, initialDelaySeconds=3)
    assert (late.first_wait(), late.next_wait()) == (3, 5)
    assert record(periodSeconds=0).next_wait() == 0.1
    assert record(Kind.LIVENESS, periodSeconds=0).next_wait() == 1


@given(
    st.lists(st.booleans(), max_size=40),
    st.integers(1, 5),
    st.integers(1, 4),
    st.sampled_from(list(Kind)),
)
@settings(max_examples=200, deadline=None)
def test_a_verdict_needs_its_threshold(
    answers: list[bool], failure: int, success: int, kind: Kind
) -> None:
    found = record(kind, failureThreshold=failure, successThreshold=success, periodSeconds=1)
    for number, ok in enumerate(answers):
        before = found.passing
        changed = found.take(YES if ok else NO, float(number))
        assert changed == (found.passing != before)
        if changed:
            needed = success if ok else failure
            assert answers[number - needed + 1 : number + 1] == [ok] * needed


def test_ports_go_by_number_and_name() -> None:
    view = msgspec.convert(
        {"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}, Container
    )
    assert probe_answer.port_of(80, view) == 80
    assert probe_answer.port_of("443", view) == 443
    assert probe_answer.port_of("http", view) == 8080
    assert probe_answer.port_of("admin", view) is None


def http(**fields: object) -> str:
    action = msgspec.convert({"port": 80, **fields}, HTTPGetAction)
    return http_get.request(action, "127.1.2.3", 80).decode()


def test_a_request_names_its_sender_and_its_host() -> None:
    text = http(path="/healthz")
    assert text.startswith("GET /healthz HTTP/1.1\r\nHost: 127.1.2.3:80\r\n")
    assert text.endswith("Connection: close\r\n\r\n")


def test_given_headers_win() -> None:
    headers = [{"name": "host", "value": "example"}, {"name": "X-A", "value": "1"}]
    text = http(httpHeaders=headers)
    assert "Host: 127" not in text
    assert "host: example\r\n" in text
    assert "X-A: 1\r\n" in text


@given(st.text(max_size=30), st.text(max_size=30))
@settings(max_examples=100, deadline=None)
def test_no_manifest_can_smuggle_a_line(path: str, value: str) -> None:
    lines = http(path=path, httpHeaders=[{"name": "X-A", "value": value}]).split("\r\n")
    assert len(lines) == 8
    assert not any("\n" in line or "\r" in line for line in lines)


@pytest.mark.parametrize(
    ("line", "ok"),
    [
        (b"HTTP/1.1 200 OK\r\n", True),
        (b"HTTP/1.0 302 Found\r\n", True),
        (b"HTTP/1.1 404 Not Found\r\n", False),
        (b"HTTP/1.1 503\r\n", False),
        (b"SSH-2.0-x\r\n", False),
        (b"", False),
        (b"HTTP/1.1 abc\r\n", False),
    ],
)
def test_success_is_any_2xx_or_3xx(line: bytes, ok: bool) -> None:
    assert http_get.http_answer(line).ok is ok


@given(st.binary(max_size=60) | st.from_regex(rb"HTTP/1.1 [0-9]{0,6000}( .*)?", fullmatch=True))
@settings(max_examples=200, deadline=None)
def test_no_answer_ends_a_probe(line: bytes) -> None:
    answer = http_get.http_answer(line)
    assert answer.ok in {True, False}
    if answer.ok:
        assert re.match(rb"HTTP/[0-9](\.[0-9])? +[23][0-9]{2}\s?", line)


@given(st.integers() | st.text() | st.from_regex("[0-9]{1,5000}", fullmatch=True))
@settings(max_examples=200, deadline=None)
def test_port_is_one_that_can_be_asked(port: int | str) -> None:
    number = probe_answer.port_of(port, msgspec.convert({"name": "c"}, Container))
    assert number is None or 0 < number < 65536


def test_unknown_answers_decide_nothing() -> None:
    found = record(Kind.LIVENESS, failureThreshold=1)
    assert found.take(YES, 0) is True
    for now in range(10):
        assert found.take(Answer(ok=None, message="no descriptor left"), now) is False
    assert (found.passing, found.failures, found.unknown) == (True, 0, "no descriptor left")
    assert found.take(NO, 20) is True
    assert found.unknown == ""
