"""The threshold of a figure is a fraction: a percentage in its place would never fail."""

import pytest

from grange.api.meta import Document
from grange.api.validation import testsessions


def session(threshold: float) -> Document:
    metric = {"name": "p99", "jsonPath": "{.p99}", "threshold": threshold}
    spec = {"driver": {"command": ["drive"]}, "evidence": {"metrics": [metric]}}
    return {"metadata": {"name": "qps", "namespace": "default"}, "spec": spec}


@pytest.mark.parametrize("threshold", [0, 0.1, 1])
def test_fractions_are_thresholds(threshold: float) -> None:
    assert testsessions.check(session(threshold), None) == []


@pytest.mark.parametrize("threshold", [-0.1, 1.5, 20])
def test_percentages_are_refused(threshold: float) -> None:
    (cause,) = testsessions.check(session(threshold), None)
    assert cause.field == "spec.evidence.metrics[0].threshold"
    assert "0.1 is 10 %" in cause.message
