"""Streams of real processes: terminals, input, slow readers, and nothing left behind."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.support.marked_processes import marked

from grange.agent.container_runtime import (
    ContainerID,
    LogQuery,
    Mount,
    PodSetup,
    Program,
    Run,
    RuntimeFailedError,
    VolumePlan,
)
from grange.agent.container_streams import OVERRUN, STDERR, ContainerStream, StreamOptions
from grange.agent.runtimes.process.process_runtime import ProcessConfig, ProcessRuntime
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Threads
from grange.base.tasks import Nursery

pytestmark = pytest.mark.e2e
# Wherever the interpreter is, isolated containers see it.
PYTHON = VolumePlan("python", host_path=sys.prefix)
POD = PodSetup("uid-1", "default", "web", "node-1", volumes=(PYTHON,))
MAIN = ContainerID(POD.uid, "main", 0)
ENV = {"PATH": os.environ["PATH"]}
LIMIT_S = 240.0


@pytest.fixture(params=["none", "auto"])
async def runtime(
    request: pytest.FixtureRequest, clock: Clock, log: Logger, tmp_path: Path
) -> AsyncGenerator[ProcessRuntime, None]:
    offload = Threads("runtime", 2)
    config = ProcessConfig(tmp_path, isolation=request.param)
    async with ProcessRuntime(config, clock=clock, log=log, offload=offload) as opened:
        await opened.prepare(POD)
        yield opened
        await opened.remove(POD.uid)
    offload.close()


async def start(
    runtime: ProcessRuntime,
    script: str = "exec sleep 600",
    *,
    stdin: bool = False,
    stdin_once: bool = False,
    tty: bool = False,
) -> Run:
    program = Program(("sh", "-c", script), ENV, stdin=stdin, stdin_once=stdin_once, tty=tty)
    return await runtime.start(MAIN, program, ())


async def shell(
    runtime: ProcessRuntime, script: str, options: StreamOptions | None = None
) -> ContainerStream:
    return await runtime.exec(MAIN, ("sh", "-c", script), options or StreamOptions())


async def read_until(stream: ContainerStream, ending: bytes) -> bytes:
    found = b""
    while ending not in found:
        output = await stream.read()
        assert output is not None, f"ended after {found!r}"
        found += output.data
    return found


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_terminal_has_a_size_and_signals(runtime: ProcessRuntime) -> None:
    await start(runtime)
    # It ends in a ``read`` of the shell: a program that dash is just starting does not get the signal.
    script = "tty; echo $TERM; read go; stty size; read more"
    stream = await shell(runtime, script, StreamOptions(stdin=True, tty=True))
    assert b"/dev/pts/" in await read_until(stream, b"xterm")
    stream.resize(120, 40)
    await stream.write(b"go\n")
    await read_until(stream, b"40 120")
    await stream.write(b"\x03")  # what a terminal turns into SIGINT
    while await stream.read() is not None:
        pass
    assert (await stream.wait()).exit_code == 130
    await stream.close()


async def test_end_of_input_reaches_a_terminal(runtime: ProcessRuntime) -> None:
    await start(runtime)
    stream = await shell(runtime, "cat; echo over", StreamOptions(stdin=True, tty=True))
    await stream.write(b"line\n")
    stream.end_input()
    await read_until(stream, b"over")
    await stream.close()


async def test_standard_error_is_apart(runtime: ProcessRuntime) -> None:
    await start(runtime)
    stream = await shell(runtime, "echo out; echo err >&2; exit 3")
    found = {1: b"", 2: b""}
    while (output := await stream.read()) is not None:
        found[output.stream] += output.data
    assert found == {1: b"out\n", 2: b"err\n"}
    assert (await stream.wait()).exit_code == 3
    await stream.close()
    quiet = await shell(runtime, "echo out; echo err >&2", StreamOptions(stdout=False))
    assert await quiet.read() == (STDERR, b"err\n")
    assert await quiet.read() is None
    await quiet.close()


async def test_closing_leaves_no_process_and_descriptor(
    runtime: ProcessRuntime, clock: Clock, tmp_path: Path
) -> None:
    await start(runtime)
    first = await shell(runtime, "true")  # the launcher is up
    await first.close()
    programs, open_before = marked(tmp_path), descriptors()
    options = [StreamOptions(stdin=True), StreamOptions(stdin=True, tty=True), StreamOptions()]
    streams = [
        await shell(runtime, "trap '' TERM HUP; sleep 600 & echo up; sleep 600", wanted)
        for wanted in options * 3
    ]
    for stream in streams:
        await read_until(stream, b"up")
    assert len(marked(tmp_path)) >= len(programs) + 2 * len(streams)
    for stream in streams:
        await stream.close()
    assert sorted(marked(tmp_path)) == sorted(programs)
    assert descriptors() == open_before


async def test_command_that_timed_out_leaves_no_process(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    await start(runtime)
    programs = marked(tmp_path)
    result = await runtime.run(MAIN, ("sh", "-c", "sleep 600 & sleep 600"), 0.3)
    assert result.timed_out
    assert sorted(marked(tmp_path)) == sorted(programs)


async def test_attached_streams_leave_no_descriptor(runtime: ProcessRuntime, clock: Clock) -> None:
    run = await start(runtime, "exec cat", stdin=True)
    ours, shims = descriptors(), descriptors_of_shim(run)
    for _ in range(20):
        stream = await runtime.attach(run.id, StreamOptions(stdin=True))
        await stream.write(b"x")
        await read_until(stream, b"x")
        await stream.close()
    assert descriptors() == ours
    async with clock.timeout(LIMIT_S):
        while descriptors_of_shim(run) > shims:
            await clock.sleep(0.01)


def descriptors_of_shim(run: Run) -> int:
    """Of the parent of the program, or of its parent where that is the first of a namespace."""
    pid = run.pid
    while Path(f"/proc/{pid}/comm").read_text().strip() != "grange-shim" or pid == run.pid:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return len(os.listdir(f"/proc/{pid}/fd"))


async def test_unread_output_stops_a_command(
    runtime: ProcessRuntime, clock: Clock, tmp_path: Path
) -> None:
    await start(runtime)
    count = tmp_path / "pods" / POD.uid / "tmp" / "count"
    stream = await shell(runtime, f"while echo {'x' * 1000}; do echo >> {count}; done")
    size = 0
    async with clock.timeout(LIMIT_S):
        while not size or count.stat().st_size > size:
            size = count.stat().st_size if count.exists() else 0
            await clock.sleep(0.2)
    assert 0 < size < 200
    await stream.close()


async def test_writer_waits_for_a_program_that_reads_nothing(
    runtime: ProcessRuntime, clock: Clock
) -> None:
    await start(runtime)
    stream = await shell(runtime, "sleep 600", StreamOptions(stdin=True))
    async with Nursery("writer") as nursery:
        writer = nursery.start(stream.write(b"x" * 1_000_000))
        await clock.sleep(0.2)
        assert not writer.done()
        await stream.close()
    assert writer.done()


async def test_slow_attached_reader_does_not_stop_the_program(
    runtime: ProcessRuntime, clock: Clock
) -> None:
    run = await start(runtime, "read go; head -c 3000000 /dev/zero; echo; echo over", stdin=True)
    stream = await runtime.attach(run.id, StreamOptions(stdin=True))
    await stream.write(b"go\n")
    query = LogQuery(follow=True)
    async with clock.timeout(LIMIT_S):
        log = b"".join([piece async for piece in runtime.logs.read(run.id, query)])
    assert log.endswith(b"over\n")
    read = 0
    while (output := await stream.read()) is not None:
        read += len(output.data)
    assert 0 < read < 3_000_000
    assert (await stream.wait()).message == OVERRUN
    await stream.close()


async def test_stdin_once_ends_with_the_first_attached(
    runtime: ProcessRuntime, clock: Clock
) -> None:
    run = await start(runtime, "exec cat", stdin=True, stdin_once=True)
    stream = await runtime.attach(run.id, StreamOptions(stdin=True))
    await stream.write(b"only this")
    await read_until(stream, b"only this")
    ended = asyncio.Event()
    runtime.watch(POD.uid, ended.set)
    await stream.close()
    async with clock.timeout(LIMIT_S):
        await ended.wait()
    (record,) = runtime.pods()
    assert record.runs[0].exit_code == 0


async def test_main_process_has_its_terminal(runtime: ProcessRuntime, clock: Clock) -> None:
    run = await start(runtime, "tty; read go; stty size; exec cat", stdin=True, tty=True)
    stream = await runtime.attach(run.id, StreamOptions(stdin=True, tty=True))
    stream.resize(100, 30)
    await stream.write(b"go\n")
    await read_until(stream, b"30 100")
    await stream.close()
    async with clock.timeout(LIMIT_S):
        while "/dev/pts/" not in (text := await log_of(runtime)):
            await clock.sleep(0.01)
    assert "30 100" in text


async def log_of(runtime: ProcessRuntime) -> str:
    return b"".join([piece async for piece in runtime.logs.read(MAIN, LogQuery())]).decode()


async def test_container_without_stdin_reads_its_end(runtime: ProcessRuntime, clock: Clock) -> None:
    run = await start(runtime, "cat; echo over; sleep 600")
    async with clock.timeout(LIMIT_S):
        while "over" not in await log_of(runtime):
            await clock.sleep(0.01)
    stream = await runtime.attach(run.id, StreamOptions(stdin=True))
    await stream.write(b"ignored")
    await stream.close()


async def test_closing_the_runtime_ends_commands(clock: Clock, log: Logger, tmp_path: Path) -> None:
    offload = Threads("runtime", 2)
    config = ProcessConfig(tmp_path)
    async with ProcessRuntime(config, clock=clock, log=log, offload=offload) as first:
        await first.prepare(POD)
        await start(first)
        before = marked(tmp_path)
        stream = await shell(first, "echo up; sleep 600")
        await read_until(stream, b"up")
    assert marked(tmp_path) == before
    async with ProcessRuntime(config, clock=clock, log=log, offload=offload) as second:
        await second.remove(POD.uid)
    offload.close()


async def test_connect_to_a_listener_of_others_is_refused(runtime: ProcessRuntime) -> None:
    await start(runtime)
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        with pytest.raises(RuntimeFailedError, match=f"port {port}: nothing in the pod"):
            await runtime.connect(POD.uid, port)


async def test_connect_reaches_all_addresses(runtime: ProcessRuntime, clock: Clock) -> None:
    code = "import socket; s = socket.create_server(('', 0)); s.accept()[0].send(b'hi')"
    program = Program((sys.executable, "-c", code), ENV)
    await runtime.start(MAIN, program, (Mount(PYTHON.name, sys.prefix),))
    async with clock.timeout(LIMIT_S):
        while not (found := await runtime.listeners()):
            await clock.sleep(0.01)
    connection = await runtime.connect(POD.uid, found[0].port)
    assert await connection.read() == b"hi"
    assert await connection.read() == b""
    await connection.close()
