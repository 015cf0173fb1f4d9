"""Environments of real processes, also of those that the kernel is just executing."""

import os
import subprocess

import pytest

from grange.agent.runtimes.process.environments import environment_of

pytestmark = pytest.mark.e2e
MARKED = {"MARK": "here"}
# It becomes another program again and again, under the same process id.
FOREVER = 'n=$1; [ "$n" -gt 0 ] && exec sh "$0" $((n - 1)); exec sleep 600'


def test_environment_is_seen_while_a_program_is_executed(tmp_path: os.PathLike[str]) -> None:
    script = os.path.join(tmp_path, "again")
    with open(script, "w", encoding="ascii") as target:
        target.write(FOREVER)
    with subprocess.Popen(
        ["/bin/sh", script, "300"], env=MARKED | {"PATH": os.environ["PATH"]}
    ) as it:
        try:
            while True:
                assert b"MARK=here" in environment_of(it.pid)
                with open(f"/proc/{it.pid}/comm", encoding="ascii") as source:
                    if source.read().strip() == "sleep":
                        break
        finally:
            it.kill()


def test_process_without_variables_has_none() -> None:
    with subprocess.Popen(["/bin/sleep", "600"], env={}) as it:
        try:
            assert [item for item in environment_of(it.pid) if item] == []
        finally:
            it.kill()


def test_ended_and_absent_processes_have_none() -> None:
    with subprocess.Popen(["/bin/true"], env=MARKED) as it:
        os.waitid(os.P_PID, it.pid, os.WEXITED | os.WNOWAIT)
        assert environment_of(it.pid) == []  # a zombie
    assert environment_of(it.pid) == []


def test_threads_of_the_kernel_have_none() -> None:
    threads = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and is_of_kernel(int(pid))]
    assert all(environment_of(pid) == [] for pid in threads)


def is_of_kernel(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as source:
            return source.read().rpartition(b")")[2].split()[1] == b"2"
    except OSError:
        return False
