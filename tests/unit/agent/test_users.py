"""As whom containers run."""

from typing import Any

import pytest
from tests.support.agent_world import world
from tests.unit.agent.builders import container, document, pod

from grange.agent import users
from grange.agent.errors import NotCreatableError
from grange.agent.users import RunAsUser
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

ROOT, JANE = RunAsUser(0, 0), RunAsUser(1000, 100)


def user(own: RunAsUser, of_container: Any = None, of_pod: Any = None) -> RunAsUser | None:
    view = pod(container(securityContext=of_container or {}), securityContext=of_pod or {})
    return users.user_of(view, view.spec.containers[0], own, lambda uid: uid + 1)


@pytest.mark.parametrize(
    ("own", "of_container", "of_pod", "expected"),
    [
        (ROOT, {}, {}, None),
        (JANE, {}, {}, None),
        (ROOT, {"runAsUser": 7}, {}, RunAsUser(7, 8)),
        (ROOT, {}, {"runAsUser": 7, "runAsGroup": 9}, RunAsUser(7, 9)),
        (ROOT, {"runAsUser": 5}, {"runAsUser": 7, "runAsGroup": 9}, RunAsUser(5, 9)),
        (ROOT, {"runAsGroup": 9}, {}, RunAsUser(0, 9)),
        (ROOT, {"runAsUser": 0}, {"runAsUser": 7}, None),
        (ROOT, {"runAsUser": 7}, {"runAsNonRoot": True}, RunAsUser(7, 8)),
        (JANE, {"runAsUser": 1000, "runAsNonRoot": True}, {}, None),
        (JANE, {"runAsUser": 1000, "runAsGroup": 100}, {}, None),
    ],
)
def test_user_is_the_one_that_is_asked_for(
    own: RunAsUser, of_container: Any, of_pod: Any, expected: RunAsUser | None
) -> None:
    assert user(own, of_container, of_pod) == expected


@pytest.mark.parametrize(
    ("own", "context", "message"),
    [
        (ROOT, {"runAsNonRoot": True}, "runAsNonRoot is set and it would run as root"),
        (ROOT, {"runAsNonRoot": True, "runAsUser": 0}, "would run as root"),
        (JANE, {"runAsUser": 7}, "runAsUser 7 cannot be given"),
        (JANE, {"runAsUser": 0}, "runAsUser 0 cannot be given"),
        (JANE, {"runAsGroup": 7}, "runAsGroup 7 cannot be given"),
    ],
)
def test_what_cannot_be_given_is_refused(own: RunAsUser, context: Any, message: str) -> None:
    with pytest.raises(NotCreatableError, match=message) as found:
        user(own, context)
    assert found.value.reason == "CreateContainerConfigError"


async def test_container_that_may_not_be_root_waits(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        context = {"runAsNonRoot": True, "runAsUser": 0}
        await there.create(document(container(securityContext=context)))
        await clock.sleep(1)
        waiting = (await there.main()).state.waiting
        assert waiting is not None
        assert waiting.reason == "CreateContainerConfigError"
        assert "runAsNonRoot" in waiting.message
        assert there.starts() == []
