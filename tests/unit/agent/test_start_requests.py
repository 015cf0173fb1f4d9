"""What a pod's start asks of the API."""

from collections import Counter

import pytest
from tests.support.agent_world import World, world
from tests.unit.agent.builders import container, document
from tests.unit.agent.test_service_account import MOUNT, VOLUME

from grange.api.http import Request
from grange.api.kinds import CONFIGMAP, SERVICEACCOUNT
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

ACCOUNT = {"metadata": {"name": "robot"}}
TOKEN = ("POST", "/api/v1/namespaces/default/serviceaccounts/robot/token")
AUTHORITY = ("GET", "/api/v1/namespaces/default/configmaps/kube-root-ca.crt")
STATUS = ("PATCH", "/api/v1/namespaces/default/pods/web/status")
EVENTS = ("POST", "/api/v1/namespaces/default/events")


def counted(there: World) -> Counter[tuple[str, str]]:
    """Counts the requests of agents from now on, but for heartbeats and those of informers."""
    found: Counter[tuple[str, str]] = Counter()

    def note(request: Request) -> None:
        path = request.path.partition("?")[0]
        if "default" in path and "watch" not in request.query:
            found[request.method, path] += 1

    there.gate = note
    return found


@pytest.mark.parametrize("count", [1, 3])
async def test_start_asks_once_for_what_all_containers_have(
    clock: Clock, rng: Stream, log: Logger, count: int
) -> None:
    async with world(clock, rng, log) as there:
        await there.client.create(SERVICEACCOUNT, ACCOUNT, "default")
        await there.client.create(CONFIGMAP, {"metadata": {"name": "kube-root-ca.crt"}}, "default")
        asked = counted(there)
        containers = [container(f"c{number}", volumeMounts=[MOUNT]) for number in range(count)]
        made = document(*containers, serviceAccountName="robot", volumes=[VOLUME])
        await there.create(made)
        await there.until_ready()
        await there.clock.sleep(10)
        assert asked == {AUTHORITY: 1, TOKEN: 1, STATUS: 1, EVENTS: count}


async def test_later_restart_gets_a_fresh_token(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        await there.client.create(SERVICEACCOUNT, ACCOUNT, "default")
        asked = counted(there)
        await there.create(document(container("often", "long"), serviceAccountName="robot"))
        await there.clock.sleep(1000)  # it runs for 900 s
        assert asked[TOKEN] == len(there.starts("often")) == 2


async def test_authority_that_comes_later_is_looked_for_again(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A pod of a new namespace is there before its authority is."""
    async with world(clock, rng, log) as there:
        await there.client.create(SERVICEACCOUNT, ACCOUNT, "default")
        main = container(volumeMounts=[MOUNT])
        await there.create(document(main, serviceAccountName="robot", volumes=[VOLUME]))
        await there.clock.sleep(1)
        assert there.starts() == []
        await there.client.create(CONFIGMAP, {"metadata": {"name": "kube-root-ca.crt"}}, "default")
        await there.clock.sleep(10)
        assert len(there.starts()) == 1
