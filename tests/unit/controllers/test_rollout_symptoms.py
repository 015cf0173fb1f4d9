"""Why a rollout failed is reported in the words of its pods, which are gone once it went back."""

import msgspec
import pytest
from tests.support.controller_world import World, world
from tests.unit.controllers import builders, test_rolling_update as moves
from tests.unit.controllers.test_rollout_service import (
    PACKED,
    Sick,
    Tools,
    begun,
    phase_is,
    tools,
    version,
)

from grange.api import conditions
from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.meta import Document
from grange.controllers.shared import availability

__all__ = ["tools"]
CRASHED: Document = {"exitCode": 3}
NO_FILE: Document = {"exitCode": 127, "message": "no such file:\n/no/such/program"}


def pod(name: str = "a", **status: object) -> Pod:
    plain = builders.pod(builders.controller(), name=name, node="n", ready=False)
    document = msgspec.to_builtins(plain)
    document["status"] |= status
    return msgspec.convert(document, Pod)


def container(**states: Document) -> list[Document]:
    return [{"name": "main", **states}]


@pytest.mark.parametrize(
    ("states", "failed"),
    [
        ({"state": {"running": {}}}, ""),
        ({"state": {"running": {}}, "lastState": {"terminated": CRASHED}}, ""),
        ({"state": {"terminated": {"exitCode": 0}}}, ""),
        ({"state": {"terminated": CRASHED}}, "a: main: ended with exit code 3"),
        ({"state": {"terminated": {"signal": 9}}}, "a: main: ended with signal 9"),
        ({"state": {"waiting": {"reason": "ErrImagePull"}}}, "a: main: ErrImagePull"),
        (
            {"state": {"waiting": {"reason": "Slow", "message": "back-off"}}},
            "a: main: back-off",
        ),
        (
            {"state": {"waiting": {"reason": "Slow"}}, "lastState": {"terminated": NO_FILE}},
            "a: main: no such file: /no/such/program",
        ),
    ],
)
def test_what_containers_report(states: dict[str, Document], failed: str) -> None:
    assert availability.failure_message([pod(containerStatuses=container(**states))]) == failed


def test_the_first_message_is_used_and_cut_short() -> None:
    full = {"type": "PodScheduled", "status": "False", "message": "no room"}
    loud = container(state={"terminated": {"exitCode": 1, "message": "x" * 900}})
    pods = [pod("c", containerStatuses=loud), pod("b", conditions=[full]), pod("a")]
    assert availability.failure_message(pods) == "b: no room"
    assert availability.failure_message(pods[:1]) == "c: main: " + "x" * 200
    assert availability.failure_message([]) == ""


@pytest.mark.parametrize("kind", ["PodScheduled", "Ready"])
def test_a_condition_speaks_no_longer_than_a_container(kind: str) -> None:
    """Any agent or scheduler may write it; it goes into a status, and into every later event."""
    loud = {"type": kind, "status": "False", "message": "no\nroom " + "x" * 9000}
    assert (
        availability.failure_message([pod(conditions=[loud])])
        == "a: " + ("no room " + "x" * 9000)[:200]
    )


async def complain(there: World, label: str) -> None:
    """What agents would report about the pods of a version whose program is not there."""
    shown = container(state={"waiting": {"reason": "x"}}, lastState={"terminated": NO_FILE})
    facts = {"ready": False, "restartCount": 3, "image": "", "imageID": ""}
    patch = {"status": {"containerStatuses": [{**item, **facts} for item in shown]}}
    for item in await there.pods():
        if item.metadata.labels["v"] == label:
            where = (item.metadata.name, item.metadata.namespace)
            await there.client.patch(POD, *where, patch=patch, subresource="status")


@pytest.mark.parametrize("back", [False, True])
async def test_a_rollout_between_two_controllers_reports_its_failure(
    tools: Tools, *, back: bool
) -> None:
    """Also when it went back, and the pods that could show it are gone."""
    async with world(*tools, kind=Sick) as there:
        await moves.begun(there, 3, healthy=False)
        await moves.roll(there, progressDeadlineSeconds=30, autoRollback=back)
        await there.settle(5.0)
        await complain(there, "2")
        await there.until(lambda: moves.phase(there, "RolledBack" if back else "Failed"))
        shown = (await moves.update(there)).status.conditions
        failed = conditions.find(shown, "RolloutFailed")
        assert failed is not None
        assert "two 0 of 3 healthy" in failed.message
        assert failed.message.endswith("; two-0: main: no such file: /no/such/program")
        await there.settle()
        (event,) = await there.events("RollingBack" if back else "RolloutFailed")
        assert "/no/such/program" in event.message
        if not back:
            await there.change("two", template=version(2))
            await there.until(lambda: moves.phase(there, "Complete"), limit_s=120.0)
            assert (await moves.update(there)).status.message == ""


async def test_rolled_back_rollout_names_why_pods_were_unavailable(tools: Tools) -> None:
    async with world(*tools, kind=Sick) as there:
        await begun(there, 2, 4, PACKED, progressDeadlineSeconds=60, autoRollback=True)
        await there.change(template=version(2, ready=False))
        await there.settle(5.0)
        await complain(there, "2")
        await there.until(lambda: phase_is(there, "RolledBack"), limit_s=120.0)
        message = (await there.condition("RolloutFailed")).message
        assert "0 of its 4 replicas are available; web-" in message
        assert message.endswith(": main: no such file: /no/such/program")
