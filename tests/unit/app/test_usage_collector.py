"""What pods use on other machines: what their agents measured, as far as it can be believed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given, strategies as st

from grange.api import codec
from grange.api.http import Request, Response
from grange.api.kinds.node import Node
from grange.api.resource_metrics import ContainerSample, PodSample, UsageSample
from grange.api.status import ServiceUnavailable
from grange.app.node_connections import AgentConnection
from grange.app.usage_collector import UsageCollector, is_sound
from grange.app.usage_metrics import UsageMetrics
from grange.base import metrics
from grange.base.clock import Clock
from grange.base.log import Logger


def node(name: str, *, ready: bool = True, port: int = 10250) -> Node:
    return codec.convert(
        {
            "metadata": {"name": name},
            "status": {
                "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            },
        },
        Node,
    )


def sample(*pods: PodSample) -> UsageSample:
    return UsageSample(datetime(2000, 1, 1, tzinfo=UTC), 15.0, ("any", "local"), pods)


def measured(of: str, cores: float = 0.5) -> PodSample:
    return PodSample("u", "default", "web", of, 15.0, {"main": ContainerSample(cores, 1000)})


class Agents:
    """Agents by node, in place of connections."""

    def __init__(self, clock: Clock) -> None:
        self.answers: dict[str, bytes] = {}
        self.asked: list[str] = []
        self._clock = clock

    @asynccontextmanager
    async def open(self, name: str) -> AsyncIterator[AgentConnection]:
        self.asked.append(name)
        if name not in self.answers:
            raise ServiceUnavailable("it is away")
        yield AgentConnection(name, _Fixed(self.answers[name]), self._clock, 0)


class _Fixed:
    def __init__(self, body: bytes) -> None:
        self._body = body

    async def send(self, request: Request) -> Response:
        return Response(200, self._body)

    async def close(self) -> None:
        """There is nothing to close."""


@pytest.fixture
def agents(clock: Clock) -> Agents:
    return Agents(clock)


@pytest.fixture
def collector(agents: Agents, clock: Clock, log: Logger) -> UsageCollector:
    there: list[str] = ["local"]
    return UsageCollector(None, lambda: there, agents, clock=clock, log=log)  # type: ignore[arg-type]  # in place of connections


async def test_ready_nodes_of_other_machines_are_read(
    agents: Agents, collector: UsageCollector, clock: Clock
) -> None:
    nodes = [node("local"), node("lost", ready=False), node("old", port=0), node("far")]
    agents.answers["far"] = msgspec.json.encode(sample(measured("far"), measured("local")))
    await collector.collect(nodes)
    assert agents.asked == ["far"]
    assert collector.samples() == (UsageSample(clock.now(), 15.0, ("far",), (measured("far"),)),)


async def test_many_nodes_are_read(agents: Agents, collector: UsageCollector) -> None:
    names = [f"n{number}" for number in range(100)]
    for name in names:
        agents.answers[name] = msgspec.json.encode(sample())
    await collector.collect([node(name) for name in names])
    assert [found.nodes for found in collector.samples()] == [(name,) for name in names]


async def test_sample_ends_when_the_agent_is_silent(
    agents: Agents, collector: UsageCollector, clock: Clock
) -> None:
    agents.answers["far"] = msgspec.json.encode(sample())
    await collector.collect([node("far")])
    del agents.answers["far"]
    await clock.sleep(30)
    await collector.collect([node("far")])
    assert len(collector.samples()) == 1
    await clock.sleep(45)
    await collector.collect([node("far")])
    assert collector.samples() == ()


async def test_sample_of_a_deleted_node_is_dropped(
    agents: Agents, collector: UsageCollector
) -> None:
    agents.answers["far"] = msgspec.json.encode(sample())
    await collector.collect([node("far")])
    await collector.collect([])
    assert collector.samples() == ()


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"\xff", b'{"taken_at": 1}', b"null"])
async def test_garbage_is_no_sample(agents: Agents, collector: UsageCollector, body: bytes) -> None:
    agents.answers["far"] = body
    await collector.collect([node("far")])
    assert collector.samples() == ()


@given(cores=st.floats(allow_nan=False, allow_infinity=False))
def test_absurd_amounts_are_dropped(cores: float) -> None:
    assert is_sound(measured("far", cores), "far") == (0 <= cores <= 1e18)


async def test_metrics_show_the_newest_samples(agents: Agents, collector: UsageCollector) -> None:
    shown = metrics.registry()
    UsageMetrics(collector.samples, shown)
    labels = {"namespace": "default", "pod": "web", "container": "main", "node": "far"}
    assert shown.get_sample_value("grange_container_cpu_cores", labels) is None
    agents.answers["far"] = msgspec.json.encode(sample(measured("far")))
    await collector.collect([node("far")])
    assert shown.get_sample_value("grange_container_cpu_cores", labels) == 0.5
    assert shown.get_sample_value("grange_container_memory_bytes", labels) == 1000
    await collector.collect([])
    assert shown.get_sample_value("grange_container_cpu_cores", labels) is None
