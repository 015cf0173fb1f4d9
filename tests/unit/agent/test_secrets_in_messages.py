"""What everybody may read names programs as their manifest has them, never with secrets in them."""

from typing import Any

import pytest
from tests.support.agent_world import world
from tests.unit.agent.builders import container, document, pod

from grange.agent import container_env
from grange.api.kinds import POD, SECRET
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream


async def test_secret_in_a_command_stays_out_of_status_and_events(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        secret = {"metadata": {"name": "keys"}, "stringData": {"tool": "s3cr3t", "path": "/s3cr3t"}}
        await there.client.create(SECRET, secret, "default")
        env = [
            {"name": name, "valueFrom": {"secretKeyRef": {"name": "keys", "key": key}}}
            for name, key in (("TOOL", "tool"), ("PATH", "path"))
        ]
        await there.create(
            document(container(program="$(TOOL)/run", env=env), restartPolicy="Never")
        )
        await there.until_phase("Failed")
        await there.clock.sleep(1)
        status = (await there.client.get_document(POD, "web", "default"))["status"]
        reported = f"{status} {await there.events()}"
        assert 'program "$(TOOL)/run" not found' in reported
        assert "s3cr3t" not in reported


@pytest.mark.parametrize(
    ("env", "path"),
    [
        ([], "/usr/bin"),
        ([{"name": "PATH", "value": "/opt/$(TOOL)/bin"}], "/opt/$(TOOL)/bin"),
        ([{"name": "PATH", "valueFrom": {"secretKeyRef": {"name": "a"}}}], "(from a reference)"),
    ],
)
def test_path_is_shown_as_it_is_written(env: Any, path: str) -> None:
    spec = pod(container(env=env)).spec.containers[0]
    built = {"PATH": "/s3cr3t" if env else "/usr/bin"}
    assert container_env.written_path(spec, built, {"PATH": "/usr/bin"}) == path
    assert container_env.written_path(spec, {"PATH": "/s3cr3t"}, {"PATH": "/usr/bin"}) != "/s3cr3t"
