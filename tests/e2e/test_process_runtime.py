"""Real processes: nothing survives its container, nothing is started twice, whichever process is killed."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import replace
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
    VolumeFile,
    VolumePlan,
)
from grange.agent.file_disk import LANES
from grange.agent.runtimes.process import shim, shim_connection
from grange.agent.runtimes.process.files import Layout
from grange.agent.runtimes.process.process_runtime import ProcessConfig, ProcessRuntime
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Threads
from grange.base.tasks import Nursery

pytestmark = pytest.mark.e2e

UID = "8a1c2f0e-0000-4000-8000-000000000001"
POD = PodSetup(UID, "default", "web", "node-1")
ENV = {"PATH": os.environ["PATH"]}
LIMIT_S = 240.0
OWNER = Path(__file__).with_name("runtime_owner.py")


def shell(script: str, **env: str) -> Program:
    return Program(("sh", "-c", script), {**ENV, **env})


def attempt(number: int = 0, container: str = "main") -> ContainerID:
    return ContainerID(UID, container, number)


def zombies_of(pid: int) -> list[str]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] == "Z" and int(fields[1]) == pid:
                found.append(name)
    return found


@pytest.fixture
async def offload() -> AsyncGenerator[Threads, None]:
    threads = Threads("runtime", 2)
    yield threads
    threads.close()


@asynccontextmanager
async def opened(
    data_dir: Path, clock: Clock, log: Logger, offload: Threads, **settings: float
) -> AsyncIterator[ProcessRuntime]:
    config = ProcessConfig(data_dir, **settings)  # type: ignore[arg-type]  # all of them are numbers
    async with ProcessRuntime(config, clock=clock, log=log, offload=offload) as runtime:
        yield runtime


@pytest.fixture
async def runtime(
    tmp_path: Path, clock: Clock, log: Logger, offload: Threads
) -> AsyncGenerator[ProcessRuntime, None]:
    async with opened(tmp_path, clock, log, offload) as made:
        await made.prepare(POD)
        yield made
        for record in made.pods():
            await made.remove(record.sandbox.uid)
    assert marked(tmp_path) == []
    assert zombies_of(os.getpid()) == []


def run_of(runtime: ProcessRuntime, target: ContainerID) -> Run:
    return next(run for pod in runtime.pods() for run in pod.runs if run.id == target)


async def end_of(runtime: ProcessRuntime, target: ContainerID, clock: Clock) -> Run:
    changed = asyncio.Event()
    stop = runtime.watch(target.pod_uid, changed.set)
    async with clock.timeout(LIMIT_S):
        while run_of(runtime, target).running:
            changed.clear()
            await changed.wait()
    stop()
    return run_of(runtime, target)


async def until_file(path: Path, clock: Clock) -> str:
    """The content of a file that a program is about to write."""
    async with clock.timeout(LIMIT_S):
        while not (path.exists() and path.read_text().endswith("\n")):  # noqa: ASYNC240  tiny
            await clock.sleep(0.01)
    return path.read_text()  # noqa: ASYNC240  tiny


# --- ends ----------------------------------------------------------------------------------------

FAMILY = """
trap '' TERM
sh -c 'trap "" TERM; while :; do sleep 0.1; done' &
setsid sh -c 'trap "" TERM; while :; do sleep 0.1; done' &
(setsid sh -c 'sleep 600 & sleep 600 &' &)
echo up > "$1"
while :; do sleep 0.1; done
"""


async def test_sigkill_reaches_children_that_hide_in_other_sessions(
    runtime: ProcessRuntime, tmp_path: Path, clock: Clock
) -> None:
    """A daemon that left its group, its session and its parent still belongs to the container."""
    program = Program(("sh", "-c", FAMILY, "sh", str(tmp_path / "up")), ENV)
    run = await runtime.start(attempt(), program, ())
    await until_file(tmp_path / "up", clock)
    assert len(marked(tmp_path)) >= 4
    await runtime.signal(run.id, signal.SIGTERM)
    await clock.sleep(0.1)
    assert run_of(runtime, run.id).running
    await runtime.signal(run.id, signal.SIGKILL)
    ended = await end_of(runtime, run.id, clock)
    assert ended.exit_code == 137
    assert marked(tmp_path) == []


async def test_what_a_program_leaves_behind_ends_with_it(
    runtime: ProcessRuntime, tmp_path: Path, clock: Clock
) -> None:
    run = await runtime.start(attempt(), shell("setsid sleep 600 & sleep 600 & exit 0"), ())
    assert (await end_of(runtime, run.id, clock)).reason == "Completed"
    assert marked(tmp_path) == []


async def test_a_program_ended_by_a_signal_reports_which(
    runtime: ProcessRuntime, clock: Clock
) -> None:
    run = await runtime.start(attempt(), shell("kill -SEGV $$"), ())
    ended = await end_of(runtime, run.id, clock)
    assert (ended.exit_code, ended.signal) == (139, signal.SIGSEGV)


@pytest.mark.parametrize(
    ("name", "content", "mode", "code", "expected"),
    [
        ("script", "#!/no/such/interpreter\n", 0o755, 127, "interpreter"),
        ("data", "just text\n", 0o644, 126, "Permission denied"),
        ("odd", "\0\0\0\0", 0o755, 126, "not a program"),
    ],
)
async def test_a_file_that_cannot_be_executed_is_named(
    runtime: ProcessRuntime,
    tmp_path: Path,
    name: str,
    content: str,
    mode: int,
    code: int,
    expected: str,
) -> None:
    path = tmp_path / name
    path.write_text(content)
    path.chmod(mode)
    run = await runtime.start(attempt(), Program((str(path),), ENV), ())
    assert (run.reason, run.exit_code) == ("StartError", code)
    assert str(path) in run.message
    assert expected in run.message


async def test_file_that_cannot_be_executed_reveals_no_secret(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    (tmp_path / "s3cr3t").write_text("just text")
    program = Program((str(tmp_path / "s3cr3t"),), ENV, written="$(TOOL)")
    run = await runtime.start(attempt(), program, ())
    assert (run.reason, run.exit_code) == ("StartError", 126)
    assert '"$(TOOL)"' in run.message
    state = Layout(tmp_path).read_state(attempt())
    assert "s3cr3t" not in f"{run.message} {state}"


async def test_a_working_directory_that_is_not_there_is_named(runtime: ProcessRuntime) -> None:
    program = Program(("sh", "-c", "true"), ENV, "/no/such/directory")
    run = await runtime.start(attempt(), program, ())
    assert (run.reason, run.exit_code) == ("StartError", 126)
    assert "/no/such/directory" in run.message


async def test_a_nul_byte_in_an_argument_is_an_answer(runtime: ProcessRuntime) -> None:
    run = await runtime.start(attempt(), Program(("echo", "a\0b"), ENV), ())
    assert (run.reason, run.exit_code) == ("StartError", 126)


async def test_stop_all_leaves_no_process_and_keeps_records(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    polite = await runtime.start(attempt(0, "polite"), shell("exec sleep 600"), ())
    rude = await runtime.start(
        attempt(0, "rude"), shell("trap '' TERM; while :; do sleep 0.05; done"), ()
    )
    await runtime.stop_all(2.0)
    assert marked(tmp_path) == []
    assert run_of(runtime, polite.id).exit_code == 143
    assert run_of(runtime, rude.id).exit_code in {137, 143}


# --- what a program is given -----------------------------------------------------------------------


async def test_a_program_gets_its_own_environment_and_no_descriptor(
    runtime: ProcessRuntime, tmp_path: Path, clock: Clock
) -> None:
    """The server's environment may hold tokens, and its descriptors its database."""
    out = tmp_path / "out"
    script = f"env -0 > {out}.env; ls /proc/self/fd > {out}.fds; echo done > {out}"
    await runtime.start(attempt(), shell(script, GREETING="hello"), ())
    await until_file(out, clock)
    environment = Path(f"{out}.env").read_bytes().split(b"\0")  # noqa: ASYNC240  tiny
    names = {item.partition(b"=")[0] for item in environment if item}
    assert names <= {b"PATH", b"GREETING", b"GRANGE_RUN", b"PWD", b"OLDPWD", b"SHLVL", b"_"}
    assert Path(f"{out}.fds").read_text().split() == ["0", "1", "2", "3"]  # noqa: ASYNC240  tiny


def files_below(top: Path) -> list[Path]:
    return [path for path in top.rglob("*") if path.is_file()]


async def test_an_environment_never_touches_the_disk(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    await runtime.start(attempt(), shell("exec sleep 600", KEY="s3cr3t-s3cr3t"), ())
    files = files_below(tmp_path)
    assert any(path.name == "state.json" for path in files)
    assert not [path for path in files if b"s3cr3t-s3cr3t" in path.read_bytes()]


async def test_pods_are_private_to_their_user(runtime: ProcessRuntime, tmp_path: Path) -> None:
    await runtime.start(attempt(), shell("exec sleep 600"), ())
    for path in (tmp_path / "pods", tmp_path / "pods" / UID):
        assert path.stat().st_mode & 0o077 == 0


async def test_pod_that_cannot_be_prepared_leaves_no_file(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    """Its secrets would stay on the disk: nothing knows of a pod that was never prepared."""
    secret = VolumePlan("secret", (VolumeFile("key", b"secret", 0o600),))
    absent = VolumePlan("absent", host_path=str(tmp_path / "absent"), host_path_type="Directory")
    with pytest.raises(RuntimeFailedError, match="is not a directory"):
        await runtime.prepare(PodSetup("uid-2", "default", "b", "node-1", (secret, absent)))
    assert not Layout(tmp_path).pod("uid-2").exists()
    assert [record.sandbox.uid for record in runtime.pods()] == [UID]


async def test_large_removal_holds_up_no_other_pod(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    with closing(Threads("runtime", LANES)) as offload:
        async with opened(tmp_path, clock, log, offload) as runtime:
            setup = replace(POD, volumes=(VolumePlan("data"),))
            volume = (await runtime.prepare(setup)).volumes["data"]
            for number in range(30_000):
                os.close(os.open(f"{volume}/{number}", os.O_CREAT | os.O_WRONLY))
            async with Nursery() as nursery:
                full = os.stat(volume).st_mtime_ns
                removal = nursery.start(runtime.remove(UID))
                while os.stat(volume).st_mtime_ns == full:
                    await clock.sleep(0.001)
                await runtime.prepare(replace(POD, uid="uid-2"))
                assert not removal.done()
            await runtime.remove("uid-2")


async def test_a_command_beside_a_container_leaves_nothing_behind(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    run = await runtime.start(attempt(), shell("exec sleep 600"), ())
    result = await runtime.run(
        run.id, shell("setsid sleep 600 & echo out; echo err >&2").command, LIMIT_S
    )
    assert result.exit_code == 0
    assert set(result.output.split()) == {"out", "err"}
    assert len(marked(tmp_path)) == 1


async def test_a_cancelled_command_is_killed(
    runtime: ProcessRuntime, tmp_path: Path, clock: Clock
) -> None:
    run = await runtime.start(attempt(), shell("exec sleep 600"), ())
    with pytest.raises(TimeoutError):
        async with clock.timeout(0.1):
            await runtime.run(run.id, shell("sleep 600; true").command, 600.0)
    async with clock.timeout(LIMIT_S):
        while len(marked(tmp_path)) != 1:
            await clock.sleep(0.01)


UNPRIVILEGED = 65534


async def test_program_runs_as_the_user_it_asks_for(
    tmp_path: Path, clock: Clock, log: Logger, offload: Threads
) -> None:
    """Below a directory that is closed to others. An agent that is not root starts nothing."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    files = (VolumeFile("key", b"value"),)
    plans = (VolumePlan("config", files, exact=True), VolumePlan("data"))
    setup = PodSetup(UID, "default", "web", "node-1", plans, shared=os.geteuid() == 0)
    mounts = (Mount("config", "/etc/app"), Mount("data", "/data"))
    script = (
        "id -u; id -g; id -G; cat etc/app/key; echo; touch here data/there $TMPDIR/tmp && echo ok;"
        f" ls {closed}; exec sleep 600"
    )
    async with opened(closed, clock, log, offload) as runtime:
        sandbox = await runtime.prepare(setup)
        program = replace(shell(script, TMPDIR=sandbox.tmp), user=(UNPRIVILEGED, UNPRIVILEGED))
        if os.geteuid() != 0:
            run = await runtime.start(attempt(), program, mounts)
            assert (run.reason, run.exit_code) == ("StartError", 126)
            assert "rights of root" in run.message
        else:
            run = await runtime.start(attempt(), program, mounts)
            text = f"{UNPRIVILEGED}\n" * 3 + "value\nok\npods\n"
            async with clock.timeout(LIMIT_S):
                while (await log_of(runtime, run.id)) != text:
                    await clock.sleep(0.01)
            found = await runtime.run(run.id, ("id", "-u"), LIMIT_S)
            assert found.output == f"{UNPRIVILEGED}\n"
            os.kill(shim_of(closed, attempt()), signal.SIGKILL)
            assert (await end_of(runtime, run.id, clock)).exit_code == 137
        await runtime.remove(UID)
    assert marked(closed) == []


async def log_of(runtime: ProcessRuntime, target: ContainerID) -> str:
    return b"".join([piece async for piece in runtime.logs.read(target, LogQuery())]).decode()


# --- logs ----------------------------------------------------------------------------------------


async def test_a_follower_misses_nothing_across_rotation(
    tmp_path: Path, clock: Clock, log: Logger, offload: Threads
) -> None:
    script = "i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo line-$i; sleep 0.002; done"
    async with opened(tmp_path, clock, log, offload, log_max_bytes=2000, log_files=50) as runtime:
        await runtime.prepare(POD)
        run = await runtime.start(attempt(), shell(script), ())
        text = b""
        async with clock.timeout(LIMIT_S):
            async for piece in runtime.logs.read(run.id, LogQuery(follow=True)):
                text += piece
        await end_of(runtime, run.id, clock)
        assert text.decode().split() == [f"line-{number}" for number in range(1, 401)]
        names = sorted(item.name for item in Layout(tmp_path).attempt(run.id).glob("log*"))
        assert len(names) > 5
        tail = [piece async for piece in runtime.logs.read(run.id, LogQuery(tail_lines=100))]
        assert b"".join(tail).decode().split() == [f"line-{n}" for n in range(301, 401)]
        await runtime.remove(UID)


async def test_old_log_files_are_let_go(
    tmp_path: Path, clock: Clock, log: Logger, offload: Threads
) -> None:
    async with opened(tmp_path, clock, log, offload, log_max_bytes=1000, log_files=3) as runtime:
        await runtime.prepare(POD)
        run = await runtime.start(attempt(), shell("seq 1 2000; printf unfinished"), ())
        await end_of(runtime, run.id, clock)
        files = list(Layout(tmp_path).attempt(run.id).glob("log*"))
        assert sorted(item.name for item in files) == ["log", "log.1", "log.2"]
        assert all(item.stat().st_size <= 1000 for item in files)
        pieces = [piece async for piece in runtime.logs.read(run.id, LogQuery(tail_lines=2))]
        assert b"".join(pieces) == b"2000\nunfinished"
        await runtime.remove(UID)


async def test_very_long_lines_come_back_whole(runtime: ProcessRuntime, clock: Clock) -> None:
    script = "head -c 100000 /dev/zero | tr '\\0' x; echo; echo end"
    run = await runtime.start(attempt(), shell(script), ())
    await end_of(runtime, run.id, clock)
    text = b"".join([piece async for piece in runtime.logs.read(run.id, LogQuery())])
    assert text == b"x" * 100000 + b"\nend\n"
    tail = b"".join([x async for x in runtime.logs.read(run.id, LogQuery(tail_lines=2))])
    assert tail == text


# --- crashes -------------------------------------------------------------------------------------


async def test_a_killed_shim_takes_its_container_along(
    runtime: ProcessRuntime, tmp_path: Path, clock: Clock
) -> None:
    program = Program(("sh", "-c", FAMILY, "sh", str(tmp_path / "up")), ENV)
    run = await runtime.start(attempt(), program, ())
    await until_file(tmp_path / "up", clock)
    state = Layout(tmp_path).read_state(run.id)
    assert state is not None
    os.kill(int(str(state["shim"])), signal.SIGKILL)
    ended = await end_of(runtime, run.id, clock)
    assert (ended.exit_code, ended.reason) == (137, "ContainerStatusUnknown")
    assert "supervisor" in ended.message
    async with clock.timeout(LIMIT_S):
        while marked(tmp_path):
            await clock.sleep(0.01)


async def test_a_killed_launcher_is_replaced(runtime: ProcessRuntime, clock: Clock) -> None:
    first = await runtime.start(attempt(0, "one"), shell("exec sleep 600"), ())
    launcher = launcher_of(first)
    assert Path(f"/proc/{launcher}/comm").read_text().strip() == "grange-launcher"  # noqa: ASYNC240  tiny
    os.kill(launcher, signal.SIGKILL)
    await clock.sleep(0.05)
    second = await runtime.start(attempt(0, "two"), shell("exec sleep 600"), ())
    assert second.running
    assert run_of(runtime, first.id).running


def launcher_of(run: Run) -> int:
    """The process that forked the shim that forked the program."""
    return parent(parent(run.pid))


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_full_machine_starts_nothing_and_can_be_asked_again(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    first = await runtime.start(attempt(0, "one"), shell("exec sleep 600"), ())
    launcher = launcher_of(first)
    before = resource.prlimit(launcher, resource.RLIMIT_NOFILE)
    resource.prlimit(launcher, resource.RLIMIT_NOFILE, (10, before[1]))
    with pytest.raises(RuntimeFailedError, match="Too many open files"):
        await runtime.start(attempt(0, "two"), shell("exec sleep 600"), ())
    assert len(marked(tmp_path)) == 1
    resource.prlimit(launcher, resource.RLIMIT_NOFILE, before)
    assert (await runtime.start(attempt(0, "two"), shell("exec sleep 600"), ())).running


async def test_a_full_disk_costs_log_lines_and_no_program(
    runtime: ProcessRuntime, tmp_path: Path, clock: Clock
) -> None:
    """The files of this attempt cannot grow; the program is neither ended nor stopped."""
    script = f"read line < {tmp_path}/go; seq 1 100000; echo done > {tmp_path}/out; exit 5"
    os.mkfifo(tmp_path / "go")
    run = await runtime.start(attempt(), shell(script), ())
    shim_pid = parent(run.pid)
    assert Path(f"/proc/{shim_pid}/comm").read_text() == "grange-shim\n"  # noqa: ASYNC240  tiny
    resource.prlimit(shim_pid, resource.RLIMIT_FSIZE, (0, 0))
    await offloaded_write(tmp_path / "go", clock)
    await until_file(tmp_path / "out", clock)
    ended = await end_of(runtime, run.id, clock)
    assert (ended.exit_code, ended.reason) == (5, "Error")


def take_descriptors(pid: int) -> None:
    """The process keeps what it has open and can open nothing more."""
    held = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    free = min(number for number in range(len(held) + 1) if number not in held)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, free))


async def test_failed_log_rotation_keeps_the_exit_code(
    tmp_path: Path, clock: Clock, log: Logger, offload: Threads
) -> None:
    """The shim has no descriptor left, so it can open no other log file, and no record either."""
    async with opened(tmp_path, clock, log, offload, log_max_bytes=1000) as runtime:
        await runtime.prepare(POD)
        os.mkfifo(tmp_path / "go")
        run = await runtime.start(attempt(), shell(f"read x < {tmp_path}/go; seq 999; exit 3"), ())
        take_descriptors(parent(run.pid))
        await offloaded_write(tmp_path / "go", clock)
        ended = await end_of(runtime, run.id, clock)
        assert (ended.exit_code, ended.reason) == (3, "Error")
        pieces = [piece async for piece in runtime.logs.read(run.id, LogQuery())]
        assert b"".join(pieces).split() == [b"%d" % number for number in range(1, 1000)]
        await runtime.remove(UID)


async def test_control_socket_has_a_name_that_is_listed_nowhere(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    """Under Landlock a program of another pod connects to every socket that it can name."""
    await runtime.prepare(POD)
    run = await runtime.start(attempt(), shell("sleep 600; true"), ())
    (control,) = Layout(tmp_path).attempt(run.id).glob("ctl*")
    assert len(control.name) > len("ctl-") + 16
    assert control.name not in Path("/proc/net/unix").read_text()  # noqa: ASYNC240  of memory
    await runtime.signal(run.id, signal.SIGKILL)


async def test_full_disk_keeps_the_exit_code_over_a_restart(
    tmp_path: Path, clock: Clock, log: Logger, offload: Threads
) -> None:
    async with opened(tmp_path, clock, log, offload) as runtime:
        await runtime.prepare(POD)
        run = await runtime.start(attempt(), shell("sleep 600; true"), ())
        directory = Layout(tmp_path).attempt(run.id)
        (directory / "state.json.tmp").mkdir()  # no second file can be made
    os.kill(run.pid, signal.SIGTERM)
    await until(clock, lambda: not [*directory.glob("ctl*")])
    async with opened(tmp_path, clock, log, offload) as runtime:
        ended = run_of(runtime, run.id)
        assert (ended.exit_code, ended.reason) == (143, "Error")
        await runtime.remove(UID)


async def test_start_without_descriptors_is_refused_at_every_stage(
    runtime: ProcessRuntime,
) -> None:
    first = await runtime.start(attempt(0, "one"), shell("exec sleep 600"), ())
    launcher = launcher_of(first)
    before = resource.prlimit(launcher, resource.RLIMIT_NOFILE)
    refused = 0
    for limit in range(8, 40):
        resource.prlimit(launcher, resource.RLIMIT_NOFILE, (limit, before[1]))
        try:
            await runtime.start(attempt(0, "two"), shell("exec sleep 600"), ())
        except RuntimeFailedError:
            refused += 1
        else:
            break
    assert refused > 3
    assert run_of(runtime, attempt(0, "two")).running


async def offloaded_write(fifo: Path, clock: Clock) -> None:
    """Open a FIFO for writing once its reader is there, without blocking the loop."""
    async with clock.timeout(LIMIT_S):
        while True:
            try:
                fd = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                await clock.sleep(0.01)
            else:
                os.write(fd, b"go\n")
                os.close(fd)
                return


async def test_a_second_server_on_the_same_directory_is_refused(
    runtime: ProcessRuntime, tmp_path: Path, clock: Clock, log: Logger, offload: Threads
) -> None:
    config = ProcessConfig(tmp_path, lock_limit_s=0.05)
    with pytest.raises(RuntimeFailedError, match="another server"):
        async with ProcessRuntime(config, clock=clock, log=log, offload=offload):
            pass
    assert (await runtime.start(attempt(), shell("exec sleep 600"), ())).running


async def test_an_unwritable_directory_is_refused_by_name(
    tmp_path: Path, clock: Clock, log: Logger, offload: Threads
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(RuntimeFailedError, match=str(blocked)):
        async with opened(blocked, clock, log, offload):
            pass


PROGRAM = Program(("true",), {})


@pytest.mark.parametrize("change", [{"boot": "another boot"}, {"pid_start": 1}])
async def test_a_reused_process_id_is_left_alone(
    tmp_path: Path, clock: Clock, log: Logger, offload: Threads, change: dict[str, object]
) -> None:
    """After a reboot, or when ids have gone round, the number belongs to another process."""
    bystander = launched("sleep", "600")
    try:
        layout = Layout(tmp_path)
        layout.make_pod(POD, "127.1.0.5")
        layout.make_attempt(attempt(), PROGRAM, (), {})
        state: dict[str, object] = {
            "id": str(attempt()),
            "boot": shim.boot_id(),
            "pid": bystander.pid,
            "pid_start": shim.start_time(bystander.pid),
            "started_at": 1.0,
        }
        layout.write_state(attempt(), {**state, **change})
        async with opened(tmp_path, clock, log, offload) as runtime:
            assert run_of(runtime, attempt()).reason == "ContainerStatusUnknown"
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


async def start_owner(
    data_dir: Path, clock: Clock, *, wait: bool = True
) -> subprocess.Popen[bytes]:
    """A process with its own runtime that starts three containers and prints a line."""
    owner = launched(sys.executable, str(OWNER), str(data_dir))
    if wait:
        await until_file(data_dir / "ready", clock)
    return owner


def launched(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)


def finish(owner: subprocess.Popen[bytes]) -> None:
    owner.kill()
    owner.wait()


async def test_programs_survive_server_sigkill_and_are_taken_over(
    tmp_path: Path, clock: Clock, log: Logger, offload: Threads
) -> None:
    owner = await start_owner(tmp_path, clock)
    finish(owner)
    before = {name: session_leaders(marked(tmp_path, name)) for name in ("a", "b", "c")}
    assert all(len(leaders) == 1 for leaders in before.values())
    async with opened(tmp_path, clock, log, offload) as runtime:
        after = {name: session_leaders(marked(tmp_path, name)) for name in before}
        assert after == before
        record = runtime.pods()[0]
        assert {run.id.container for run in record.runs if run.running} == {"a", "b", "c"}
        # The programs write all the time; a broken pipe would have killed them.
        target = attempt(0, "a")
        lines = await count_lines(runtime, target)
        async with clock.timeout(LIMIT_S):
            while await count_lines(runtime, target) <= lines + 5:
                await clock.sleep(0.02)
        await runtime.signal(target, signal.SIGTERM)
        assert (await end_of(runtime, target, clock)).signal == signal.SIGTERM
        await runtime.remove(record.sandbox.uid)
    assert marked(tmp_path) == []


async def count_lines(runtime: ProcessRuntime, target: ContainerID) -> int:
    pieces = [piece async for piece in runtime.logs.read(target, LogQuery())]
    return b"".join(pieces).count(b"\n")


@pytest.mark.parametrize("delay_ms", [60, 120, 150, 170, 190, 210, 230, 260])
async def test_nothing_is_doubled_whenever_the_server_is_killed(
    tmp_path: Path, clock: Clock, log: Logger, offload: Threads, delay_ms: int
) -> None:
    """Killed while it starts its containers: the next one sees all that were asked for."""
    owner = await start_owner(tmp_path, clock, wait=False)
    await clock.sleep(delay_ms / 1000)
    finish(owner)
    async with opened(tmp_path, clock, log, offload) as runtime:
        await runtime.prepare(POD)
        known = {run.id for pod in runtime.pods() for run in pod.runs if run.running}
        for name in ("a", "b", "c"):
            target = attempt(0, name)
            count = len(marked(tmp_path, name))
            assert (count > 0) == (target in known)
            if target not in known:
                await runtime.start(target, shell("exec sleep 600"), ())
        assert all(len(session_leaders(marked(tmp_path, name))) == 1 for name in ("a", "b", "c"))
        for record in runtime.pods():
            await runtime.remove(record.sandbox.uid)
    assert marked(tmp_path) == []


def session_leaders(pids: list[int]) -> list[int]:
    """Those of the processes that a shim started; the others are their children."""
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}") and os.getsid(pid) == pid]


# --- supervisors that do not answer ----------------------------------------------------------------


async def until(clock: Clock, test: Callable[[], bool]) -> None:
    async with clock.timeout(LIMIT_S):
        while not test():
            await clock.sleep(0.01)


def shim_of(data_dir: Path, target: ContainerID) -> int:
    state = Layout(data_dir).read_state(target)
    assert state is not None
    return int(str(state["shim"]))


@asynccontextmanager
async def left_behind(
    data_dir: Path, clock: Clock, log: Logger, offload: Threads
) -> AsyncIterator[int]:
    """Two containers of an earlier runtime; the shim of ``main`` is stopped: its process id."""
    async with opened(data_dir, clock, log, offload) as first:
        await first.prepare(POD)
        await first.start(attempt(), shell("exec sleep 600"), ())
        await first.start(attempt(0, "other"), shell("exec sleep 600"), ())
    shim_pid = shim_of(data_dir, attempt())
    os.kill(shim_pid, signal.SIGSTOP)
    try:
        yield shim_pid
    finally:
        with suppress(ProcessLookupError):
            os.kill(shim_pid, signal.SIGCONT)


@pytest.mark.parametrize("connections", [0, 20])
async def test_stopped_shim_holds_up_nothing(
    tmp_path: Path, clock: Clock, log: Logger, offload: Threads, connections: int
) -> None:
    """Also where so many have connected that the kernel takes no more connections."""
    async with left_behind(tmp_path, clock, log, offload) as shim_pid, AsyncExitStack() as stack:
        for _ in range(connections):
            with suppress(BlockingIOError):
                made = shim_connection.connect(Layout(tmp_path).attempt(attempt()))
                assert made is not None
                stack.callback(made.close)
        settings = {"answer_limit_s": 0.2}
        async with clock.timeout(LIMIT_S), opened(tmp_path, clock, log, offload, **settings) as new:
            silent, other = run_of(new, attempt()), run_of(new, attempt(0, "other"))
            assert silent.running
            assert f"process {shim_pid}" in silent.message
            assert other.running
            await until(clock, lambda: not run_of(new, attempt(0, "other")).message)
            assert (await new.run(other.id, ("true",), LIMIT_S)).exit_code == 0
            os.kill(shim_pid, signal.SIGCONT)
            await until(clock, lambda: not run_of(new, attempt()).message)
            assert (await new.run(silent.id, ("true",), LIMIT_S)).exit_code == 0
            await new.signal(silent.id, signal.SIGTERM)
            assert (await end_of(new, silent.id, clock)).signal == signal.SIGTERM
            await new.remove(UID)
    assert marked(tmp_path) == []


async def test_pod_of_a_stopped_shim_can_be_removed(
    tmp_path: Path, clock: Clock, log: Logger, offload: Threads
) -> None:
    async with left_behind(tmp_path, clock, log, offload):
        settings = {"answer_limit_s": 0.2, "kill_limit_s": 0.5}
        async with opened(tmp_path, clock, log, offload, **settings) as new:
            await new.remove(UID)
            assert new.pods() == []
    await until(clock, lambda: marked(tmp_path) == [])


async def test_stopped_launcher_is_ended_on_close(
    tmp_path: Path, clock: Clock, log: Logger, offload: Threads
) -> None:
    async with clock.timeout(LIMIT_S):
        async with opened(tmp_path, clock, log, offload) as first:
            await first.prepare(POD)
            run = await first.start(attempt(), shell("exec sleep 600"), ())
            os.kill(launcher_of(run), signal.SIGSTOP)
        async with opened(tmp_path, clock, log, offload) as second:
            assert run_of(second, run.id).running
            await second.remove(UID)


async def test_command_of_a_stopped_launcher_is_bounded(
    tmp_path: Path, clock: Clock, log: Logger, offload: Threads
) -> None:
    async with opened(tmp_path, clock, log, offload, kill_limit_s=0.2) as runtime:
        await runtime.prepare(POD)
        run = await runtime.start(attempt(), shell("exec sleep 600"), ())
        launcher = launcher_of(run)
        os.kill(launcher, signal.SIGSTOP)
        try:
            with pytest.raises(RuntimeFailedError, match="does not answer"):
                await runtime.run(run.id, ("true",), 0.1)
        finally:
            os.kill(launcher, signal.SIGCONT)
        await runtime.remove(UID)
