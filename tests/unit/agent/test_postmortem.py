"""Why a container failed: ports that are taken, and its own last words."""

from typing import Any

import pytest
from tests.support.agent_world import World, world
from tests.unit.agent.builders import UID, container, document, pod, run

from grange.agent import postmortem
from grange.agent.container_runtime import ListeningSocket, PodRecord, PodSetup, Sandbox
from grange.agent.runtimes.fake import Script
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

OTHER = "uid-2"
EVERYWHERE = "0.0.0.0"  # noqa: S104  as scripts have it; nothing listens
PODS = [PodRecord(PodSetup(OTHER, "shop", "web-2", "node-1"), Sandbox(OTHER, "127.1.0.2", "/x"))]
PYTHON = """Traceback (most recent call last):
  File "/usr/lib/python3.11/socketserver.py", line 456, in __init__
OSError: [Errno 98] Address already in use"""
NODE = "Error: listen EADDRINUSE: address already in use :::8080"
GO = "2026/01/01 00:00:00 listen tcp 0.0.0.0:8080: bind: address already in use"
NGINX = "nginx: [emerg] bind() to 0.0.0.0:8080 failed (98: Address already in use)"
GUNICORN = "[1] [ERROR] Connection in use: ('0.0.0.0', 8080)"


def taken(output: str, *listeners: ListeningSocket, **fields: Any) -> str:
    spec = pod(container(**fields)).spec.containers[0]
    return postmortem.port_taken(run(code=1), spec, output, listeners, PODS)


@pytest.mark.parametrize("output", [NODE, GO, NGINX, GUNICORN])
def test_holder_is_found_by_the_port_in_the_output(output: str) -> None:
    held = [ListeningSocket(OTHER, "main", EVERYWHERE, port) for port in (8080, 9090)]
    found = taken(output, *held)
    assert "port 8080 is held by pod shop/web-2, which listens on 0.0.0.0" in found
    assert "$(POD_IP)" in found


@pytest.mark.parametrize(
    "fields",
    [
        {"ports": [{"containerPort": 8080}]},
        {"args": ["--port=8080"]},
        {"readinessProbe": {"tcpSocket": {"port": 8080}}},
    ],
)
def test_holder_is_found_by_the_port_in_the_manifest(fields: dict[str, object]) -> None:
    found = taken(PYTHON, ListeningSocket(OTHER, "main", "127.1.0.2", 8080), **fields)
    assert "port 8080 is held by pod shop/web-2" in found


def test_container_of_the_same_pod_is_named() -> None:
    found = taken(
        NODE, ListeningSocket(UID, "main", "::", 8080), ListeningSocket(UID, "side", "::", 8080)
    )
    assert "held by container side of this pod" in found


def test_remedy_is_given_without_a_holder() -> None:
    found = taken(PYTHON, ListeningSocket(OTHER, "main", "::", 8080))
    assert found.startswith("address already in use; ")
    assert "$(POD_IP)" in found


async def terminated(there: World, name: str = "web") -> str:
    found = (await there.main(name)).last_state.terminated
    assert found is not None
    return found.message


async def test_collision_is_reported_in_status_and_event(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        there.machine.scripts["first"] = Script(listens=((EVERYWHERE, 8080),))
        there.machine.scripts["second"] = Script(
            duration_s=0.5, exit_code=1, output=((0.0, "starting"), (0.1, NODE))
        )
        await there.create(document(container(program="first"), name="holder"))
        await there.until_ready("holder")
        await there.create(document(container(program="second")))
        await clock.sleep(1.3)
        held = "port 8080 is held by pod default/holder"
        waiting = (await there.main()).state.waiting
        assert waiting is not None
        assert waiting.message.startswith("back-off 1s restarting container main; address already")
        assert held in waiting.message
        assert held in await terminated(there)
        reported = [message for reason, message in await there.events() if reason == "AddressInUse"]
        assert reported
        assert held in reported[0]
        for _ in range(2):  # while it waits, and while the next run is under way
            there.crash_agent()
            there.start_agent()
            await clock.sleep(0.1)
            assert held in await terminated(there)


@pytest.mark.parametrize(("policy", "message"), [("File", ""), ("FallbackToLogsOnError", "a\nb\n")])
async def test_last_output_is_the_message_where_asked_for(
    clock: Clock, rng: Stream, log: Logger, policy: str, message: str
) -> None:
    async with world(clock, rng, log) as there:
        there.machine.scripts["talks"] = Script(
            duration_s=1.0, exit_code=3, output=((0.0, "a"), (0.1, "b"))
        )
        spec = container(program="talks", terminationMessagePolicy=policy)
        await there.create(document(spec, restartPolicy="Never"))
        await there.until_phase("Failed")
        ended = (await there.main()).state.terminated
        assert ended is not None
        assert ended.message == message


LEFT = "/dev/termination-log"


@pytest.mark.parametrize(
    ("policy", "content", "code", "message"),
    [
        ("File", b"disk is full", 3, "disk is full"),
        ("File", b"all done", 0, "all done"),
        ("FallbackToLogsOnError", b"disk is full", 3, "disk is full"),
        ("FallbackToLogsOnError", b"", 3, "last words\n"),
        ("FallbackToLogsOnError", b"", 0, ""),
        ("File", b"", 3, ""),
        ("File", b"x" * 5000, 3, "x" * 4096),
    ],
)
async def test_message_is_what_the_program_left(
    clock: Clock, rng: Stream, log: Logger, policy: str, content: bytes, code: int, message: str
) -> None:
    async with world(clock, rng, log) as there:
        there.machine.scripts["leaves"] = Script(
            duration_s=1.0, exit_code=code, output=((0.0, "last words"),), files=((LEFT, content),)
        )
        fields = {"terminationMessagePolicy": policy}
        await there.create(document(container(program="leaves", **fields), restartPolicy="Never"))
        await there.until_phase("Failed" if code else "Succeeded")
        found = (await there.main()).state.terminated
        assert found is not None
        assert (found.exit_code, found.message) == (code, message)
        assert "Failed" not in [reason for reason, _ in await there.events()]
