"""The restart policy of a container, and its rules by exit code."""

from typing import Any

import pytest
from tests.support.agent_world import World, world
from tests.unit.agent.builders import container, document

from grange.agent.runtimes.fake import Script
from grange.api.restart_policies import restarts
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

Tools = tuple[Clock, Stream, Logger]


@pytest.fixture
def tools(clock: Clock, rng: Stream, log: Logger) -> Tools:
    return clock, rng, log


def rule(operator: str, *values: int) -> dict[str, Any]:
    return {"action": "Restart", "exitCodes": {"operator": operator, "values": list(values)}}


@pytest.mark.parametrize(
    ("policy", "exit_code", "rules", "again"),
    [
        ("Never", 42, [rule("In", 42)], True),
        ("Never", 1, [rule("In", 42)], False),
        ("Never", 1, [rule("In", 42), rule("In", 1)], True),
        ("Never", 1, [rule("NotIn", 42)], True),
        ("Never", 42, [rule("NotIn", 42)], False),
        ("Never", 42, [rule("In")], False),
        ("OnFailure", 0, [rule("In", 0)], True),
        ("OnFailure", 0, [rule("In", 42)], False),
        ("OnFailure", 1, [rule("In", 42)], True),
        ("Always", 0, [rule("In", 42)], True),
        ("Never", 42, [{"action": "Restart"}], False),
    ],
)
def test_rule_decides_before_the_policy(
    policy: str, exit_code: int, rules: list[dict[str, Any]], again: bool
) -> None:
    assert restarts(policy, 0, exit_code, rules) is again


async def runs(
    there: World, seconds: float, *containers: Any, **spec: Any
) -> tuple[str, list[int]]:
    """The pod's phase after a while, and how often each container was started."""
    there.machine.scripts["retry"] = Script(duration_s=1.0, exit_code=42)
    await there.create(document(*containers, **spec))
    await there.clock.sleep(seconds)
    counts = [len(there.starts(item["name"])) for item in containers]
    return (await there.pod()).status.phase, counts


async def test_rule_restarts_a_container_of_a_pod_that_never_does(tools: Tools) -> None:
    spec = container(program="retry", restartPolicy="Never", restartPolicyRules=[rule("In", 42)])
    async with world(*tools) as there:
        assert await runs(there, 2.5, spec, restartPolicy="Never") == ("Running", [2])
        assert (await there.main()).restart_count == 1
        there.machine.scripts["retry"] = Script(duration_s=1.0, exit_code=7)
        await there.until_phase("Failed")
        assert len(there.starts()) == 3


async def test_policy_of_a_container_goes_before_the_pods(tools: Tools) -> None:
    once = container("once", "badly", restartPolicy="Never")
    always = container("always", "well", restartPolicy="Always")
    failing = container("failing", "badly", restartPolicy="OnFailure")
    async with world(*tools) as there:
        found = await runs(there, 2.5, once, always, failing, restartPolicy="Never")
        assert found == ("Running", [1, 2, 2])


async def test_rule_of_an_init_container_is_followed(tools: Tools) -> None:
    first = container("first", "retry", restartPolicy="Never", restartPolicyRules=[rule("In", 42)])
    async with world(*tools) as there:
        found = await runs(there, 2.5, container(), initContainers=[first], restartPolicy="Never")
        assert found == ("Pending", [0])
        assert len(there.starts("first")) == 2
        there.machine.scripts["retry"] = Script(duration_s=1.0)
        await there.until_ready()


async def test_rule_holds_for_the_next_agent(tools: Tools) -> None:
    spec = container(program="retry", restartPolicy="Never", restartPolicyRules=[rule("In", 42)])
    async with world(*tools) as there:
        there.machine.scripts["retry"] = Script(duration_s=10.0, exit_code=42)
        await there.create(document(spec, restartPolicy="Never"))
        await there.until_ready()
        there.crash_agent()
        await there.clock.sleep(20)
        there.start_agent()
        await there.clock.sleep(2)
        assert len(there.starts()) == 2
