"""What a process of controllers answers to monitoring systems and kubelets."""

import pytest

from grange.api.http import Request
from grange.app.metrics_server import MetricsServer
from grange.base.metrics import (
    CollectorRegistry,
    Counter,
    exposition,
    once_per_registry,
    registry,
)


async def answer(path: str, *, why: str = "", method: str = "GET") -> tuple[int, str]:
    source = registry()
    Counter("grange_example", "An example.", registry=source).inc()
    server = MetricsServer(source, {"session": lambda: why})
    response = await server.handle(Request(method, path))
    body = response.body
    assert isinstance(body, bytes)
    return response.status, body.decode()


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/livez/"])
async def test_health_paths_answer_ok(path: str) -> None:
    assert await answer(path) == (200, "ok")


async def test_readiness_names_what_fails() -> None:
    status, text = await answer("/readyz", why="no session in the farm")
    assert (status, text) == (
        500,
        "[-]session failed: no session in the farm\nreadyz check failed\n",
    )
    assert await answer("/livez", why="no session in the farm") == (200, "ok")


async def test_metrics_are_served_as_text() -> None:
    status, text = await answer("/metrics")
    assert status == 200
    assert "grange_example_total 1.0" in text


async def test_other_requests_are_refused() -> None:
    assert (await answer("/"))[0] == 404
    assert (await answer("/metrics", method="POST"))[0] == 405


class ExampleMetrics:
    """What a room's ``metrics.py`` holds; each attribute declares one metric."""

    def __init__(self, source: CollectorRegistry) -> None:
        self.greetings = Counter("grange_example_greetings", "Greetings.", ["to"], registry=source)


async def test_metric_is_one_declaration() -> None:
    """What docs/explanation/architecture.md promises for a metric."""
    metrics_of = once_per_registry(ExampleMetrics)
    source = registry()
    metrics_of(source).greetings.labels("Ada").inc()
    metrics_of(source).greetings.labels("Ada").inc()
    response = await MetricsServer(source, {}).handle(Request("GET", "/metrics"))
    assert isinstance(response.body, bytes)
    assert 'grange_example_greetings_total{to="Ada"} 2.0' in response.body.decode()
    assert b"greetings" not in exposition(registry())
