"""``make run``: every example on a fresh control plane, with proof, times and a verdict.

Starts ``grange up`` on a scratch directory, runs the examples that ``EXAMPLES`` names, stops it, does the
same for ``ISOLATED``, whose pods need names and addresses, and for ``ON_MACHINES``, which bring their own
machines, and prints a summary. Exits 0 when all of it
worked; otherwise non-zero, with the reason and the server's log.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from takeover.example import MACHINES
from takeover.network import MachineNetwork, machine_network

# Sessions first: what other examples leave running would keep machines from being leased whole.
EXAMPLES = (
    "sessions.http",
    "quickstart",
    "replication",
    "services",
    "gang",
    "jobs.allreduce",
    "machines",
    "simulate",
)
HERE = Path(__file__).resolve().parent
NODES = ("--nodes", "4", "--pool", "drivers=1", "--pool", "workers=3")
ON_MACHINES = ("takeover",)
GRANGE = (sys.executable, "-m", "grange")
INTERRUPTED = 130


class ExampleFailed(RuntimeError):
    """An example did not do what it promises; the message describes what was seen instead."""


class Stage:
    """What an example works with: the command line, and a place to print what it does.

    Args:
        directory: scratch directory of the control plane.

    Attributes:
        machines: further machines that join.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig"
        self.machines = MachineNetwork()
        self.times: list[tuple[str, float]] = []
        self._color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    def show(self, text: str) -> None:
        """A line for the reader."""
        print(f"  {text}", flush=True)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """A step with its time; a failure inside is reported under its title."""
        arrow = "\033[36m▸\033[0m" if self._color else "▸"
        print(f"{arrow} {title}", flush=True)
        started = time.monotonic()
        yield
        self.times.append((title, time.monotonic() - started))

    def grange(self, *words: str, quiet: bool = False, code: int = 0) -> str:
        """Run ``grange`` with these words and return what it printed; its progress is shown.

        Raises:
            ExampleFailed: it exited with another code than expected.
        """
        command = [*GRANGE, *words]
        if words[0] not in {"up", "down", "simulate"}:
            command += ["--kubeconfig", str(self.kubeconfig)]
        if not quiet:
            self.show(f"$ grange {shlex.join(words)}")
        done = subprocess.run(
            command, check=False, stdout=subprocess.PIPE, stderr=None, text=True, timeout=400
        )
        if done.returncode != code:
            raise ExampleFailed(
                f"grange {shlex.join(words)} exited with {done.returncode}\n{done.stdout}"
            )
        if not quiet:
            for line in done.stdout.splitlines():
                self.show(f"  {line}")
        return done.stdout


def summary(stage: Stage, total: float) -> None:
    """A table of the steps and their times."""
    width = max(len(title) for title, _ in stage.times)
    print("\nSummary")
    for title, seconds in stage.times:
        print(f"  {title.ljust(width)}  {seconds:6.2f} s")
    print(f"  {'in all'.ljust(width)}  {total:6.2f} s")


def run_on(stage: Stage, title: str, flags: Sequence[str], examples: Sequence[str]) -> None:
    """Run examples on a control plane with these flags, and stop it whatever they do."""
    up = ("up", "--data-dir", str(stage.directory), "--listen", "127.0.0.1:0")
    try:
        with stage.step(title):
            stage.grange(*up, "--no-switch", "--detach", *flags)
        for name in examples:
            import_module(f"{name}.example").run(stage)
    finally:
        if (stage.directory / "up.json").exists():
            with stage.step("stop the control plane"):
                stage.grange("down", "--data-dir", str(stage.directory))


def main() -> int:
    """Run everything; the exit code."""
    sys.path.insert(0, str(HERE))
    started = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="grange-run-"))
    stage = Stage(directory)
    code = 1
    try:
        run_on(stage, "start a control plane with four nodes in two pools", NODES, EXAMPLES)
        title = "start it again, for machines that join"
        with machine_network(MACHINES) as stage.machines:
            flags = ("--disable", "agent", "--remove-nodes", *stage.machines.flags)
            run_on(stage, title, flags, ON_MACHINES)
        code = 0
    except KeyboardInterrupt:
        shutil.rmtree(directory, ignore_errors=True)
        print("\ninterrupted; nothing is left", file=sys.stderr)
        return INTERRUPTED
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        code = 1
        print(f"\nFAILED: {error}", file=sys.stderr)
        server_log = directory / "up.log"
        if server_log.exists():
            print(f"--- {server_log}\n{server_log.read_text()[-4000:]}", file=sys.stderr)
    if code == 0:
        shutil.rmtree(directory)
        summary(stage, time.monotonic() - started)
        print("\nIt works. Next: .venv/bin/grange up, and the README.")
    else:
        print(f"the scratch directory is kept: {directory}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
