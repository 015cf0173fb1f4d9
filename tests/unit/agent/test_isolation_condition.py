"""A Node states in a condition what separates its pods."""

import pytest
from tests.support.agent_world import world

from grange.agent import isolation_condition
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream


@pytest.mark.parametrize(
    ("isolation", "status", "reason"),
    [
        ("namespaces", "True", "Namespaces"),
        ("landlock", "True", "Landlock"),
        ("none", "False", "NoIsolation"),
        ("other", "Unknown", "OtherIsolation"),
    ],
)
def test_condition_follows_the_isolation(isolation: str, status: str, reason: str) -> None:
    kind, *rest, message = isolation_condition.condition(isolation)
    assert (kind, *rest) == ("grange.dev/PodsIsolated", status, reason)
    assert message


async def test_node_has_the_condition(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        await there.clock.sleep(1)
        node = await there.node()
        [found] = [item for item in node.status.conditions if item.type.endswith("PodsIsolated")]
        isolation = node.metadata.labels["grange.dev/isolation"]
        assert (found.type, found.status, found.reason, found.message) == (
            isolation_condition.condition(isolation)
        )
