"""How an MPI launcher reaches workers: by ``kubectl exec``, or by an agent on one machine."""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.gangjob.wired_jobs import context, model, role

from grange.controllers.gangjob.frameworks import mpi_agent
from grange.controllers.gangjob.job_services import files_document

pytestmark = pytest.mark.e2e

AGENT = str(mpi_agent.__file__)
JOB = f"test-{os.getpid()}"
HOST = "127.5.64.1"
LIMIT_S = 240

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts the agent; ended with the test, whatever it started included."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, **variables: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, AGENT, *arguments],
            env={"PATH": os.environ["PATH"], "GRANGE_MPI_JOB": JOB, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate(timeout=LIMIT_S)


def test_command_runs_in_the_worker_with_the_callers_output(start: Start) -> None:
    start("serve", GRANGE_MPI_HOST=HOST, ROLE="worker")
    caller = start("connect", HOST, "read", "line;", 'echo "$ROLE: $line"; exit 7', ROLE="launcher")
    out, err = caller.communicate("hello\n", timeout=LIMIT_S)
    assert (caller.returncode, out, err) == (7, "worker: hello\n", "")


def test_signal_of_a_command_is_its_exit_code(start: Start) -> None:
    start("serve", GRANGE_MPI_HOST=HOST)
    caller = start("connect", HOST, "kill -9 $$")
    caller.communicate(timeout=LIMIT_S)
    assert caller.returncode == 128 + signal.SIGKILL


def test_launcher_waits_for_the_worker(start: Start) -> None:
    caller = start("connect", HOST, "echo up")
    start("serve", GRANGE_MPI_HOST=HOST)
    assert caller.communicate(timeout=LIMIT_S)[0] == "up\n"


def test_worker_that_never_starts_is_named(start: Start) -> None:
    caller = start("connect", "127.5.64.2", "true", GRANGE_MPI_WAIT_S="0.2")
    _, err = caller.communicate(timeout=LIMIT_S)
    assert caller.returncode == 255
    assert err == "worker 127.5.64.2 did not start within 0.2 s\n"


def test_command_ends_with_its_caller(start: Start, tmp_path: Path) -> None:
    """What the launcher started does not go on when it is killed."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    start("serve", GRANGE_MPI_HOST=HOST)
    caller = start("connect", HOST, f"exec sh -c 'echo $$ > {fifo}; exec sleep 600'")
    pid = int(fifo.read_text())
    ended = os.pidfd_open(pid)
    caller.kill()
    try:
        assert select.select([ended], [], [], LIMIT_S)[0]
    finally:
        os.close(ended)


# With fork and this setsid a command leads its process group long after its caller has gone.
SLOW_TO_LEAD_A_SESSION = """
import os, time
setsid = os.setsid
def slow_setsid():
    time.sleep(1.0)
    setsid()
os.setsid = slow_setsid
"""


def test_command_ends_if_its_caller_goes_at_once(start: Start, tmp_path: Path) -> None:
    """Before the command has a process group, too."""
    (tmp_path / "sitecustomize.py").write_text(SLOW_TO_LEAD_A_SESSION)
    start("serve", GRANGE_MPI_HOST=HOST, PYTHONPATH=str(tmp_path))
    assert start("connect", HOST, "true").wait(LIMIT_S) == 0
    output, inside = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.connect(f"\0grange-mpi/{JOB}/{HOST}")
        socket.send_fds(caller, [b"exec sleep 600"], [inside] * 3)
    os.close(inside)
    try:
        assert select.select([output], [], [], LIMIT_S)[0]
        assert os.read(output, 1) == b""
    finally:
        os.close(output)


def test_worker_ends_with_its_own_command(start: Start) -> None:
    worker = start("serve", "sh", "-c", "read line; exit 3", GRANGE_MPI_HOST=HOST)
    assert start("connect", HOST, "echo up").communicate(timeout=LIMIT_S)[0] == "up\n"
    worker.communicate("go\n", timeout=LIMIT_S)
    assert worker.returncode == 3


SLOW_TO_GO_ON = """
import os, time
fork = os.fork
def slow_fork():
    child = fork()
    time.sleep(1.0 if child else 0.0)
    return child
os.fork = slow_fork
"""


@pytest.mark.parametrize("program", ["", SLOW_TO_GO_ON], ids=["at once", "a second later"])
def test_command_decides_on_sigterm(start: Start, tmp_path: Path, program: str) -> None:
    """However soon the agent goes on after its command has begun."""
    (tmp_path / "sitecustomize.py").write_text(program)
    script = "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.1; done"
    variables = {"GRANGE_MPI_HOST": HOST, "PYTHONPATH": str(tmp_path)}
    worker = start("serve", "sh", "-c", script, **variables)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "up\n"
    os.killpg(worker.pid, signal.SIGTERM)
    assert worker.communicate(timeout=LIMIT_S)[0] == "bye\n"
    assert worker.returncode == 5


def files_of_mpi() -> dict[str, str]:
    job = model(role("launcher"), role("worker", 2), framework="MPI")
    document = files_document(context(job))
    assert document is not None
    return dict(document["data"])


KUBECTL = """#!/bin/sh
if [ "$1" = get ]; then
  echo x >> "$COUNT"
  [ "$(wc -l < "$COUNT")" -ge 2 ] && echo Running || echo Pending
  exit 0
fi
printf '%s\\n' "$@"
"""


def test_remote_shell_waits_and_executes_in_the_pod(tmp_path: Path) -> None:
    """Hydra calls it with options, Open MPI with the host first; a word keeps what it is."""
    script, kubectl = tmp_path / "rsh.sh", tmp_path / "kubectl"
    script.write_text(files_of_mpi()["rsh.sh"])
    kubectl.write_text(KUBECTL)
    (tmp_path / "sleep").write_text("#!/bin/sh\n")
    for path in (script, kubectl, tmp_path / "sleep"):
        path.chmod(0o755)
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "COUNT": str(tmp_path / "count")}
    command = [str(script), "-x", "train-worker-1.train", "orted", "-mca", "ess", '"env"']
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        *("exec", "train-worker-1", "-n", "team", "-c", "main", "--", "/bin/sh", "-c"),
        'orted -mca ess "env"',
    ]
    never = {**variables, "COUNT": "/dev/null", "GRANGE_MPI_WAIT_S": "3"}
    gone = subprocess.run(command, env=never, capture_output=True, text=True, check=False)
    assert (gone.returncode, gone.stdout) == (255, "")
    assert "worker train-worker-1 did not start in time" in gone.stderr
