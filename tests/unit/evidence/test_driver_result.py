"""Results of drivers: where they are found, and what is read from them."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from grange.api.kinds.testsession import SessionMetric
from grange.evidence import driver_result
from grange.evidence.driver_result import ResultError

RESULT: dict[str, Any] = {
    "latency": {"p50": 1, "p99": 2.5},
    "qps": "1200.5",
    "ok": True,
    "runs": [{"n": 1}, {"n": 2}],
    "huge": 10**400,
    "text": "fast" * 100,
}


def metric(path: str, name: str = "m") -> SessionMetric:
    return SessionMetric(name=name, json_path=path, unit="ms", better="Lower")


def test_metrics_are_read_in_order() -> None:
    found = driver_result.read_metrics(
        RESULT, [metric("{.latency.p99}", "p99"), metric("{.qps}", "qps"), metric("{.runs[1].n}")]
    )
    assert [(item.name, item.value) for item in found.values] == [
        *(("p99", 2.5), ("qps", 1200.5), ("m", 2.0))
    ]
    assert (found.values[0].unit, found.values[0].better) == ("ms", "Lower")
    assert found.problems == ()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("{.absent}", "it selects 0 values of the driver's result"),
        ("{.runs[*].n}", "it selects 2 values"),
        ("{.ok}", "true is no number"),
        ("{.latency}", '{"p50":1,"p99":2.5} is no number'),
        ("{.text}", "is no finite number; report one"),
        ("{.huge}", "is no finite number"),
        ("{.latency", "no closing brace"),
    ],
)
def test_unusable_metric_is_explained(path: str, message: str) -> None:
    found = driver_result.read_metrics(RESULT, [metric(path, "p99"), metric("{.latency.p50}")])
    (problem,) = found.problems
    assert problem.startswith(f"metric p99: {path}: ")
    assert message in problem
    assert len(problem) < 300
    assert [item.value for item in found.values] == [1.0]


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (b'start\n{"a":1}\n{"a":2}\nbye\n', {"a": 2}),
        (b'  {"a":1}  ', {"a": 1}),
        (b'{"a":1}\r\n{broken}\n', {"a": 1}),
        (b'{"a":1}\n\xff{}\n{"b":"\xff"}', {"a": 1}),
        (b"[1]\n3\n", None),
        (b"", None),
    ],
)
def test_last_json_object_of_a_log_is_the_result(log: bytes, expected: object) -> None:
    assert driver_result.last_object(log) == expected


@pytest.mark.parametrize(
    "raw", [b"", b"[1]", b"{", b"garbage \x00 100 %s", b'"\xff"', b'{"a":' * 100_000]
)
def test_garbage_is_an_error_that_names_the_place(raw: bytes) -> None:
    with pytest.raises(ResultError, match=r"cannot read artifact out\.json: .*; the driver must"):
        driver_result.parse(raw, "artifact out.json")


@given(st.binary())
def test_any_log_is_read(log: bytes) -> None:
    found = driver_result.last_object(log)
    assert found is None or isinstance(found, dict)
