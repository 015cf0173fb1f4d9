"""What every pod runtime promises, whichever runs the containers."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.support import containerd, network_namespaces
from tests.support.containerd import BUSYBOX, Containerd
from tests.support.own_port import own_port

from grange.agent.container_runtime import (
    UNLIMITED,
    CommandResult,
    ContainerID,
    ContainerLimits,
    ImageProgram,
    LogQuery,
    Mount,
    NameFiles,
    PodRuntime,
    PodSetup,
    Program,
    Run,
    RuntimeFailedError,
    VolumePlan,
)
from grange.agent.container_streams import STDOUT, ContainerStream, StreamEnd, StreamOptions
from grange.agent.memory_streams import echo
from grange.agent.node_runtime import NodeRuntime
from grange.agent.runtimes.cri.cri_config import CriConfig
from grange.agent.runtimes.cri.cri_runtime import CriRuntime
from grange.agent.runtimes.fake import FakeMachine, FakeRuntime, Script
from grange.agent.runtimes.process import landlock
from grange.agent.runtimes.process.process_runtime import ProcessConfig, ProcessRuntime
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Threads
from grange.base.tasks import Nursery

LIMIT_S = 240.0
LANDLOCK_NEEDED = 3  # the first version that keeps the database from being emptied
LINES = tuple(f"line {number}" for number in range(1, 6))
ENV = {"GREETING": "hello"}
# The interpreter may be in /tmp, of which isolated containers have their own.
PYTHON = VolumePlan("python", host_path=sys.prefix)
POD = PodSetup("uid-1", "default", "web", "node-1", (PYTHON,))

# What the programs of this suite are, as scripts and as commands.
SCRIPTS = {
    "forever": Script(output=((0.0, "up"),)),
    "well": Script(duration_s=0.05),
    "badly": Script(duration_s=0.05, exit_code=3),
    "stubborn": Script(term_s=None, output=((0.0, "up"),)),
    "polite": Script(term_exit_code=0, output=((0.0, "up"),)),
    "talker": Script(duration_s=0.3, output=tuple((0.0, line) for line in LINES)),
    "answers yes": Script(),
    "reporter": Script(output=((0.0, "up"),), files=(("progress", b"42 half"),)),
    "busy": Script(output=((0.0, "up"),), cpu=1.0, memory_bytes=8_000_000),
    "looker": Script(duration_s=0.05, output=((0.0, "sleep 600"),)),
    "writer": Script(output=((0.0, "up"),), files=(("shared/a/env", b"NAME='value'"),)),
    "leaver": Script(duration_s=0.05, files=(("/dev/termination-log", b"all of it"),)),
    "reader": Script(respond=echo),
    "listener": Script(output=((0.0, "up"),), listens=(("127.0.0.1", 8080),)),
    "echoer": Script(output=((0.0, "up"),), listens=(("127.0.0.1", 8080),)),
}
COMMANDS: dict[str, CommandResult | Callable[[Program], CommandResult]] = {
    "greet": lambda program: CommandResult(0, program.env["GREETING"] + "\n"),
    "yes": CommandResult(0, "yes\n"),
    "no": CommandResult(4, "no\n"),
    "slow": CommandResult(137, "", timed_out=True),
}
LISTENER = (
    "import socket; a = socket.create_server(('127.0.0.1', 0)); print('up', flush=True)\n"
    "while c := a.accept()[0]:\n"
    "  while d := c.recv(9): c.send(d)\n"
    "  c.close()"
)
BUSY = "a = bytearray(5_000_000); print('up', flush=True)\nwhile True: pass"
SHELL = {
    "listener": f'exec {sys.executable} -c "{LISTENER}"',
    "echoer": f'exec {sys.executable} -c "{LISTENER}"',
    "reader": "exec cat",
    "cat": "cat",
    "forever": "echo up; exec sleep 600",
    "well": "sleep 0.05",
    "badly": "sleep 0.05; exit 3",
    "stubborn": "trap '' TERM; echo up; while :; do sleep 0.05; done",
    "polite": "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done",
    "talker": "\n".join(f"echo '{line}'" for line in LINES) + "\nsleep 0.3",
    "reporter": "printf '42 half' > $TMPDIR/progress; echo up; sleep 600",
    "busy": f'exec {sys.executable} -c "{BUSY}"',
    "writer": (
        "cd $SHARED && mkdir a && printf \"NAME='value'\" > a/env && ln -s a b && ln -s a/env c; "
        "echo up; sleep 600"
    ),
    "leaver": "printf 'all of it' > $GRANGE_ROOT/dev/termination-log",
    "looker": "cat /proc/[0-9]*/cmdline | tr '\\0' ' '",
    "yes": "echo yes",
    "no": "echo no; exit 4",
    "slow": "sleep 600",
    "greet": "echo $GREETING",
}


# Programs that are the first of their container's processes end by no signal that they do not handle.
IN_CONTAINERS = {
    **SHELL,
    "forever": "trap 'exit 143' TERM; echo up; sleep 600 & wait",
    "listener": f"httpd -p 127.0.0.1:{own_port(2)} && echo up; sleep 600",
    "busy": "echo up; exec awk 'BEGIN { while (length(x) < 9000000) x = x \"0123456789\" x; for (;;) ; }'",
    "leaver": "printf 'all of it' > /dev/termination-log",
    "echoer": (
        f"nc -ll -p {own_port(3)} -e cat & "
        f"until cat /proc/net/tcp* | awk '/:{own_port(3):04X} .* 0A /{{f=1}} END{{exit !f}}'; "
        "do sleep 0.05; done; echo up; wait"
    ),
}


@dataclass
class Harness:
    """A runtime and how to name the suite's programs to it."""

    runtime: PodRuntime
    program: Callable[[str], Program]
    reopen: Callable[[], AsyncGenerator[PodRuntime, None]]
    clock: Clock
    has_name_files: bool = False

    async def start(
        self,
        name: str,
        container: str = "main",
        attempt: int = 0,
        *,
        stdin: bool = False,
        joins: str = "",
        limits: ContainerLimits = UNLIMITED,
        **env: str,
    ) -> Run:
        target = ContainerID(POD.uid, container, attempt)
        program = self.program(name)
        program = replace(
            program,
            env={**program.env, **env},
            message_path="/dev/termination-log",
            stdin=stdin,
            joins=joins,
            limits=limits,
        )
        return await self.runtime.start(target, program, (Mount(PYTHON.name, sys.prefix),))

    async def end_of(self, target: ContainerID) -> Run:
        """Wait for the end of a run, the way a worker does."""
        changed = asyncio.Event()
        stop = self.runtime.watch(target.pod_uid, changed.set)
        try:
            async with self.clock.timeout(LIMIT_S):
                while (run := self.run_of(target)).running:
                    changed.clear()
                    await changed.wait()
        finally:
            stop()
        return run

    async def until_up(self, target: ContainerID) -> None:
        """Wait until the program has reported that it is ready for signals."""
        async with self.clock.timeout(LIMIT_S):
            while "up" not in await self.text(target, LogQuery()):
                await self.clock.sleep(0.01)

    def run_of(self, target: ContainerID) -> Run:
        runs = [run for pod in self.runtime.pods() for run in pod.runs]
        return next(run for run in runs if run.id == target)

    async def text(self, target: ContainerID, query: LogQuery) -> str:
        pieces = [piece async for piece in self.runtime.logs.read(target, query)]
        return b"".join(pieces).decode()


@pytest.fixture(
    params=[
        "fake",
        pytest.param("none", marks=pytest.mark.e2e),
        *(
            [pytest.param("landlock", marks=pytest.mark.e2e)]
            if landlock.version() >= LANDLOCK_NEEDED
            else []
        ),
        pytest.param("auto", marks=pytest.mark.e2e),
        *(
            [pytest.param("netns", marks=pytest.mark.e2e)]
            if network_namespaces.are_possible()
            else []
        ),
        *([pytest.param("cri", marks=pytest.mark.e2e)] if containerd.is_possible() else []),
    ]
)
async def harness(
    request: pytest.FixtureRequest, clock: Clock, log: Logger, tmp_path: Path
) -> AsyncGenerator[Harness, None]:
    if request.param == "fake":
        machine = FakeMachine(SCRIPTS, COMMANDS, {"cat": echo})

        async def again() -> AsyncGenerator[PodRuntime, None]:
            yield FakeRuntime(machine, clock)

        yield Harness(FakeRuntime(machine, clock), lambda name: Program((name,), ENV), again, clock)
        for uid in list(machine.pods):
            await FakeRuntime(machine, clock).remove(uid)
        return
    offload = Threads("runtime", 2)
    launcher = ProcessRuntime(
        ProcessConfig(tmp_path, programs_network="addresses"), clock=clock, log=log, offload=offload
    )

    def real() -> NodeRuntime:
        if request.param == "cri":
            socket = request.getfixturevalue("machine_containerd").socket
            return CriRuntime(
                CriConfig(tmp_path, socket),
                clock=clock,
                log=log,
                offload=offload,
                launcher=launcher,
            )
        tiers = {"isolation": "auto", "programs_network": "netns"}
        chosen = tiers if request.param == "netns" else {"isolation": request.param}
        config = ProcessConfig(tmp_path, **chosen)
        return ProcessRuntime(config, clock=clock, log=log, offload=offload)

    def shell(name: str) -> Program:
        if request.param == "cri":
            words = ("/bin/sh", "-c", IN_CONTAINERS[name]) if name in SHELL else (name,)
            return Program(words, {"PATH": "/bin", **ENV}, image=ImageProgram(BUSYBOX))
        words = ("sh", "-c", SHELL[name]) if name in SHELL else (name,)
        return Program(words, {"PATH": os.environ["PATH"], **ENV})

    async with AsyncExitStack() as stack:
        stack.callback(offload.close)
        if request.param == "cri":
            await stack.enter_async_context(launcher)
        first = real()
        await stack.enter_async_context(first)

        async def reopened() -> AsyncGenerator[PodRuntime, None]:
            await first.__aexit__(None, None, None)
            async with real() as second:
                yield second
                await remove_all(second)

        yield Harness(first, shell, reopened, clock, first.has_name_files)
        await remove_all(first)


@pytest.fixture(scope="module")
def machine_containerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containerd]:
    with containerd.running(tmp_path_factory.mktemp("containerd")) as found:
        yield found


async def remove_all(runtime: PodRuntime) -> None:
    for record in runtime.pods():
        await runtime.remove(record.sandbox.uid)


@asynccontextmanager
async def taken_over(harness: Harness) -> AsyncIterator[Harness]:
    """The same pods as the next runtime sees them."""
    generator = harness.reopen()
    try:
        runtime = await anext(generator)
        yield Harness(runtime, harness.program, harness.reopen, harness.clock)
    finally:
        async for _ in generator:
            pass


async def read_all(stream: ContainerStream) -> bytes:
    """Standard output to its end."""
    pieces = []
    while (output := await stream.read()) is not None:
        if output.stream == STDOUT:
            pieces.append(output.data)
    return b"".join(pieces)


async def test_prepare_gives_every_pod_an_address_of_its_own(harness: Harness) -> None:
    one = await harness.runtime.prepare(POD)
    other = await harness.runtime.prepare(PodSetup("uid-2", "default", "web", "node-1"))
    assert one.address.startswith("127.")
    assert one.address != other.address


async def test_prepare_again_answers_the_same(harness: Harness) -> None:
    one = await harness.runtime.prepare(POD)
    assert await harness.runtime.prepare(POD) == one
    assert len(harness.runtime.pods()) == 1


async def test_start_without_prepare_is_refused(harness: Harness) -> None:
    with pytest.raises(RuntimeFailedError, match="not prepared"):
        await harness.start("forever")


async def test_a_started_program_is_running(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("forever")
    assert run.running
    assert harness.run_of(run.id).running


@pytest.mark.parametrize(
    ("name", "code", "reason"), [("well", 0, "Completed"), ("badly", 3, "Error")]
)
async def test_an_end_is_reported_with_code_and_reason(
    harness: Harness, name: str, code: int, reason: str
) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.end_of((await harness.start(name)).id)
    assert (run.exit_code, run.signal, run.reason) == (code, 0, reason)
    assert run.finished_at is not None
    assert run.finished_at >= run.started_at


async def test_a_program_that_is_not_there_is_an_answer(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("no-such-program")
    assert (run.running, run.exit_code, run.reason) == (False, 127, "StartError")
    assert "no-such-program" in run.message
    assert "not found" in run.message


@pytest.mark.parametrize("word", ["x" * 5000, "/" + "x" * 5000])
async def test_program_with_an_impossible_name_is_an_answer(harness: Harness, word: str) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start(word)
    assert (run.running, run.exit_code, run.reason) == (False, 127, "StartError")


async def test_message_names_the_program_as_it_is_written(harness: Harness) -> None:
    """A ``$(NAME)`` of the manifest may stand for a secret; status and Events may not show it."""
    await harness.runtime.prepare(POD)
    for number, word in enumerate(("s3cr3t", "./s3cr3t")):
        plain = replace(harness.program(word), env={"PATH": "/s3cr3t/bin"})
        program = replace(plain, written="$(TOOL)", search="$(DIR)/bin")
        target = ContainerID(POD.uid, "main", number)
        run = await harness.runtime.start(target, program, ())
        assert (run.running, run.reason) == (False, "StartError")
        assert "$(TOOL)" in run.message
        assert "s3cr3t" not in run.message


async def test_starting_the_same_attempt_again_starts_nothing(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    first = await harness.start("forever")
    again = await harness.start("forever")
    assert again == first
    assert len(harness.runtime.pods()[0].runs) == 1


async def test_sigterm_ends_a_program_with_its_signal(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("forever")
    await harness.until_up(run.id)
    await harness.runtime.signal(run.id, signal.SIGTERM)
    ended = await harness.end_of(run.id)
    assert (ended.exit_code, ended.signal, ended.reason) == (143, signal.SIGTERM, "Error")


async def test_a_program_may_end_well_on_sigterm(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("polite")
    await harness.until_up(run.id)
    await harness.runtime.signal(run.id, signal.SIGTERM)
    ended = await harness.end_of(run.id)
    assert (ended.exit_code, ended.reason) == (0, "Completed")


async def test_sigkill_ends_what_ignores_sigterm(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("stubborn")
    await harness.until_up(run.id)
    await harness.runtime.signal(run.id, signal.SIGTERM)
    await harness.clock.sleep(0.2)
    assert harness.run_of(run.id).running
    await harness.runtime.signal(run.id, signal.SIGKILL)
    ended = await harness.end_of(run.id)
    assert (ended.exit_code, ended.signal) == (137, signal.SIGKILL)


async def test_signals_to_what_is_gone_do_nothing(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.end_of((await harness.start("well")).id)
    await harness.runtime.signal(run.id, signal.SIGTERM)
    await harness.runtime.signal(ContainerID("missing", "main", 0), signal.SIGTERM)
    await harness.runtime.remove("absent")
    assert harness.run_of(run.id) == run


async def test_the_last_two_attempts_are_remembered(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    for attempt in range(4):
        await harness.end_of((await harness.start("badly", attempt=attempt)).id)
    assert [run.id.attempt for run in harness.runtime.pods()[0].runs] == [2, 3]


async def test_a_watcher_that_stopped_is_not_called(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    calls: list[str] = []
    stop = harness.runtime.watch(POD.uid, lambda: calls.append("called"))
    run = await harness.start("well")
    stop()
    await harness.end_of(run.id)
    assert calls == []


async def test_remove_ends_what_runs_and_frees_the_address(harness: Harness) -> None:
    sandbox = await harness.runtime.prepare(POD)
    await harness.start("stubborn")
    await harness.start("forever", container="other")
    await harness.runtime.remove(POD.uid)
    assert harness.runtime.pods() == []
    assert (await harness.runtime.prepare(POD)).address == sandbox.address


async def test_a_log_is_read_whole_and_by_its_tail(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.end_of((await harness.start("talker")).id)
    assert await harness.text(run.id, LogQuery()) == "".join(f"{line}\n" for line in LINES)
    assert await harness.text(run.id, LogQuery(tail_lines=2)) == "line 4\nline 5\n"
    assert await harness.text(run.id, LogQuery(tail_lines=0)) == ""
    assert await harness.text(run.id, LogQuery(limit_bytes=8)) == "line 1\nl"


async def test_a_follower_reads_until_the_end_of_the_run(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("talker")
    assert await harness.text(run.id, LogQuery(follow=True)) == "".join(f"{x}\n" for x in LINES)
    await harness.end_of(run.id)


async def test_the_log_of_nothing_is_empty(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    assert await harness.text(ContainerID(POD.uid, "main", 7), LogQuery(follow=True)) == ""


@pytest.mark.parametrize(("name", "code"), [("yes", 0), ("no", 4)])
async def test_a_command_answers_with_its_code_and_output(
    harness: Harness, name: str, code: int
) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("forever")
    result = await harness.runtime.run(run.id, harness.program(name).command, LIMIT_S)
    assert (result.exit_code, result.output, result.timed_out) == (code, f"{name}\n", False)


async def test_a_command_has_the_environment_of_its_container(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("forever")
    result = await harness.runtime.run(run.id, harness.program("greet").command, LIMIT_S)
    assert result.output == "hello\n"


async def test_a_command_beside_what_does_not_run_is_refused(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.end_of((await harness.start("well")).id)
    for target in (run.id, ContainerID("absent", "main", 0)):
        with pytest.raises(RuntimeFailedError, match="not running"):
            await harness.runtime.run(target, harness.program("yes").command, LIMIT_S)


async def test_one_pod_can_be_asked_for(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    await harness.runtime.prepare(PodSetup("uid-2", "default", "web", "node-1"))
    assert [record.sandbox.uid for record in harness.runtime.pods("uid-2")] == ["uid-2"]
    assert harness.runtime.pods("absent") == []


async def test_listening_containers_are_found(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    await harness.start("forever", container="other")
    assert await harness.runtime.listeners() == []
    run = await harness.start("listener")
    await harness.until_up(run.id)
    [found] = await harness.runtime.listeners()
    assert found[:3] == (POD.uid, "main", "127.0.0.1")
    assert found.port > 0


async def test_files_of_the_temporary_directory_are_read(harness: Harness) -> None:
    sandbox = await harness.runtime.prepare(POD)
    run = await harness.start("reporter", TMPDIR=sandbox.tmp)
    await harness.until_up(run.id)
    assert await harness.runtime.read_file(POD.uid, "progress", 2) == b"42"
    assert await harness.runtime.read_file(POD.uid, "progress", 100) == b"42 half"
    assert await harness.runtime.read_file(POD.uid, "missing", 100) is None
    assert await harness.runtime.read_file("another", "progress", 100) is None


async def test_files_of_names_change_while_a_program_runs(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("forever")
    read = ("cat", "/etc/hosts", "/etc/resolv.conf")
    for text in ("127.9.0.9\tfirst and longer than the next\n", "127.9.0.9\tsecond\n"):
        await harness.runtime.write_name_files(POD.uid, NameFiles(text, "nameserver 127.9.0.1\n"))
        seen = (await harness.runtime.run(run.id, read, LIMIT_S)).output
        if harness.has_name_files:
            assert seen == f"{text}nameserver 127.9.0.1\n"
        else:
            assert "127.9.0.9" not in seen


async def test_program_shares_the_processes_of_another(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    with pytest.raises(RuntimeFailedError, match="container main does not run"):
        await harness.start("looker", "debug", joins="main")
    main = await harness.start("forever")
    await harness.until_up(main.id)
    run = await harness.start("looker", "debug", joins="main")
    assert (await harness.end_of(run.id)).exit_code == 0
    assert "sleep 600" in await harness.text(run.id, LogQuery())
    assert harness.run_of(main.id).running


async def test_files_of_names_of_a_gone_pod_are_not_written(harness: Harness) -> None:
    await harness.runtime.write_name_files("uid-2", NameFiles("", ""))
    assert harness.runtime.pods("uid-2") == []


async def test_a_removed_pod_starts_nothing(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    await harness.runtime.remove(POD.uid)
    with pytest.raises(RuntimeFailedError, match="not prepared"):
        await harness.start("forever")


async def test_a_command_that_takes_too_long_is_killed(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("forever")
    result = await harness.runtime.run(run.id, harness.program("slow").command, 0.1)
    assert result.timed_out


async def test_a_command_that_is_not_there_is_an_answer(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("forever")
    result = await harness.runtime.run(run.id, harness.program("no-such-program").command, LIMIT_S)
    assert result.exit_code == 127
    assert "no-such-program" in result.output


async def test_the_next_runtime_takes_over_what_runs(harness: Harness) -> None:
    sandbox = await harness.runtime.prepare(POD)
    running = await harness.start("forever")
    ended = await harness.end_of((await harness.start("badly", container="other")).id)
    async with taken_over(harness) as after:
        record = after.runtime.pods()[0]
        assert (record.sandbox.address, record.setup.name) == (sandbox.address, POD.name)
        assert {run.id: run.running for run in record.runs} == {running.id: True, ended.id: False}
        assert after.run_of(ended.id) == ended
        greeting = await after.runtime.run(running.id, after.program("greet").command, LIMIT_S)
        assert greeting.output == "hello\n"
        await after.runtime.signal(running.id, signal.SIGTERM)
        assert (await after.end_of(running.id)).exit_code == 143


async def test_message_that_a_program_left_is_read(harness: Harness) -> None:
    sandbox = await harness.runtime.prepare(POD)
    run = await harness.start("leaver", GRANGE_ROOT=sandbox.root("main"))
    run = await harness.end_of(run.id)
    assert run.exit_code == 0
    path = "/dev/termination-log"
    assert await harness.runtime.read_message(run.id, path, 4096) == b"all of it"
    assert await harness.runtime.read_message(run.id, path, 2) == b"it"
    assert await harness.runtime.read_message(run.id, "/none", 2) is None
    assert await harness.runtime.read_message(ContainerID("absent", "main", 0), path, 2) is None


async def test_usage_of_what_runs_is_known(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    assert await harness.runtime.usage() == []
    run = await harness.start("busy")
    await harness.until_up(run.id)
    await harness.end_of((await harness.start("well", container="other")).id)
    begun, (before,) = harness.clock.monotonic(), await harness.runtime.usage()
    assert before.id == run.id
    async with harness.clock.timeout(LIMIT_S):
        while True:
            await harness.clock.sleep(0.5)
            (after,) = await harness.runtime.usage()
            used = after.cpu_s - before.cpu_s
            assert used < harness.clock.monotonic() - begun + 1.0
            if used > 0.05 and after.memory_bytes > 4_000_000:
                break


@pytest.mark.parametrize(("name", "code", "output"), [("yes", 0, b"yes\n"), ("no", 4, b"no\n")])
async def test_exec_streams_output_and_exit_code(
    harness: Harness, name: str, code: int, output: bytes
) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("forever")
    stream = await harness.runtime.exec(run.id, harness.program(name).command, StreamOptions())
    assert await read_all(stream) == output
    assert await stream.wait() == StreamEnd(code)
    await stream.close()


async def test_exec_gives_input_until_its_end(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("forever")
    command = harness.program("cat").command
    stream = await harness.runtime.exec(run.id, command, StreamOptions(stdin=True))
    for word in (b"one", b"two"):
        await stream.write(word)
        assert await stream.read() == (STDOUT, word)
    stream.end_input()
    stream.end_input()
    assert await read_all(stream) == b""
    assert await stream.wait() == StreamEnd(0)
    await stream.write(b"more")
    await stream.close()


async def test_exec_has_the_environment_of_its_container(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("forever", GREETING="hi there")
    stream = await harness.runtime.exec(run.id, harness.program("greet").command, StreamOptions())
    assert await read_all(stream) == b"hi there\n"
    await stream.close()


async def test_exec_of_what_is_not_there_is_an_answer(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("forever")
    stream = await harness.runtime.exec(run.id, ("no such program",), StreamOptions())
    assert await stream.read() is None
    end = await stream.wait()
    assert end.exit_code == 127
    assert "no such program" in end.message
    await stream.close()


async def test_exec_and_attach_need_a_running_container(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("well")
    await harness.end_of(run.id)
    with pytest.raises(RuntimeFailedError, match="not running"):
        await harness.runtime.exec(run.id, harness.program("yes").command, StreamOptions())
    with pytest.raises(RuntimeFailedError, match="not running"):
        await harness.runtime.attach(run.id, StreamOptions())


async def test_closing_a_command_ends_its_stream(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("forever")
    stream = await harness.runtime.exec(run.id, harness.program("slow").command, StreamOptions())
    async with Nursery("reader") as nursery:
        reader = nursery.start(stream.read())
        await harness.clock.sleep(0.01)
        await stream.close()
        await stream.close()
    assert reader.result() is None


async def test_the_end_of_a_container_ends_its_commands(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("forever")
    stream = await harness.runtime.exec(run.id, harness.program("cat").command, StreamOptions())
    await harness.runtime.signal(run.id, signal.SIGKILL)
    assert await read_all(stream) == b""
    await stream.close()


async def test_attach_gives_input_to_the_main_process(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("reader", stdin=True)
    for word in (b"first", b"second"):
        stream = await harness.runtime.attach(run.id, StreamOptions(stdin=True))
        await stream.write(word)
        assert await stream.read() == (STDOUT, word)
        await stream.close()
    assert harness.run_of(run.id).running


async def test_attach_ends_with_the_container(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("reader", stdin=True)
    stream = await harness.runtime.attach(run.id, StreamOptions())
    await harness.runtime.signal(run.id, signal.SIGKILL)
    assert await stream.read() is None
    assert await stream.wait() == StreamEnd()
    await stream.close()


async def test_attach_works_after_a_take_over(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("reader", stdin=True)
    async with taken_over(harness) as later:
        stream = await later.runtime.attach(run.id, StreamOptions(stdin=True))
        await stream.write(b"still there")
        assert await stream.read() == (STDOUT, b"still there")
        await stream.close()


async def test_connect_reaches_a_listener_of_the_pod(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("echoer")
    await harness.until_up(run.id)
    (found,) = await harness.runtime.listeners()
    connection = await harness.runtime.connect(POD.uid, found.port)
    await connection.write(b"hello")
    assert await connection.read() == b"hello"
    connection.end_output()
    assert await connection.read() == b""
    await connection.close()


async def test_connect_names_what_the_pod_listens_on(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("listener")
    await harness.until_up(run.id)
    (found,) = await harness.runtime.listeners()
    with pytest.raises(RuntimeFailedError, match=f"port 1: nothing.* listens on {found.port}$"):
        await harness.runtime.connect(POD.uid, 1)


async def test_limits_of_a_running_container_change(harness: Harness) -> None:
    await harness.runtime.prepare(POD)
    run = await harness.start("forever", limits=ContainerLimits(1000, 256 << 20))
    await harness.until_up(run.id)
    for limits in (ContainerLimits(500, 512 << 20), ContainerLimits(2000, 128 << 20)):
        await harness.runtime.resize(run.id, limits, 100)
    assert harness.run_of(run.id).running
    answer = await harness.runtime.run(run.id, harness.program("yes").command, LIMIT_S)
    assert answer.exit_code == 0
    await harness.runtime.signal(run.id, signal.SIGKILL)
    await harness.end_of(run.id)
    with pytest.raises(RuntimeFailedError, match="not running"):
        await harness.runtime.resize(run.id, ContainerLimits(500, 128 << 20), 100)


@pytest.mark.parametrize("in_memory", [False, True])
async def test_file_of_a_volume_is_read(harness: Harness, in_memory: bool) -> None:
    volumes = (PYTHON, VolumePlan("shared", in_memory=in_memory))
    sandbox = await harness.runtime.prepare(replace(POD, volumes=volumes))
    target = ContainerID(POD.uid, "main", 0)
    program = harness.program("writer")
    where = "/shared" if program.image is not None else sandbox.volumes["shared"]
    where = "/shared" if harness.has_name_files else where
    program = replace(program, env={**program.env, "SHARED": where})
    mounts = (Mount(PYTHON.name, sys.prefix), Mount("shared", "/shared"))
    await harness.runtime.start(target, program, mounts)
    await harness.until_up(target)

    async def read(path: str, volume: str = "shared", uid: str = POD.uid) -> bytes | None:
        return await harness.runtime.read_volume(uid, volume, path, 10)

    assert await read("a/env") == b"NAME='valu"
    for path in ("none", "a", "b/env", "c", "../shared/a/env", "a/env/x"):
        assert await read(path) is None, path
    assert await read("a/env", "other") is None
    assert await read("a/env", uid="uid-2") is None
