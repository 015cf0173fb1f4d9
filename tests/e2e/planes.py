"""Control planes as processes, for end-to-end tests: started, killed, and always cleaned up."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self, TextIO

from tests.e2e.warm_cli import WarmCli, WarmProcess

GRANGE = [sys.executable, "-m", "grange"]
LIMIT_S = 240.0


@dataclass
class Plane:
    """``grange up`` on a directory, in the foreground of a process; of a block, for as long as that runs."""

    cli: ClassVar[WarmCli]  # the fixture of this folder sets it
    directory: Path
    nodes: int = 1
    words: tuple[str, ...] = ()
    process: WarmProcess | None = field(default=None, repr=False)
    output: TextIO | None = field(default=None, repr=False)

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> str:
        """Start it and return the line that states where it serves."""
        reading, writing = os.pipe()
        self.output = os.fdopen(reading)
        try:
            with (self.directory.parent / "up.stderr").open("a") as errors:
                self.process = self.cli.start(
                    *("up", "--data-dir", str(self.directory), "--listen", "127.0.0.1:0"),
                    # Whatever this machine has: programs of tests are not in its images,
                    # and they and their files are below /tmp.
                    *("--cri-socket", "none", "--isolation", "none"),
                    *("--nodes", str(self.nodes), "--no-switch", *self.words),
                    stdout=writing,
                    stderr=errors.fileno(),
                )
        finally:
            os.close(writing)
        line = self.output.readline()
        assert line.startswith("ready in"), (line, self.errors())
        return line

    def errors(self) -> str:
        return (self.directory.parent / "up.stderr").read_text()

    def kill(self) -> None:
        """SIGKILL: nothing is cleaned up."""
        assert self.process is not None
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, and wait; the exit code."""
        return 0 if self.process is None else self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        assert self.process is not None
        assert self.output is not None
        self.process.send_signal(number)
        code = self.process.wait(LIMIT_S)
        self.output.close()
        self.process = None
        return code

    def grange(self, *words: str, code: int = 0, stdin: str = "") -> str:
        """Run a verb against it; checks the exit code and returns both outputs."""
        done = self.cli.run(*patient(*words), "--kubeconfig", str(self.kubeconfig), stdin=stdin)
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def get(self, *words: str) -> dict[str, Any]:
        """``grange get … -o json`` as a document."""
        found: dict[str, Any] = json.loads(self.grange("get", *words, "-o", "json"))
        return found


def patient(*words: str) -> tuple[str, ...]:
    """The words of a verb, whose wait may take as long as a busy machine needs unless they limit it."""
    waits = words[0] in {"delete", "wait"} or (
        words[0] in {"apply", "rc", "scale"} and "--wait" in words
    )
    if not waits or any(word.startswith("--timeout") for word in words):
        return words
    return (*words, f"--timeout={LIMIT_S:.0f}s")


def eventually(holds: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> None:
    """Poll until it holds; real processes have no virtual time.

    Checks that start a process take turns with what they wait for: half of the time, none is made.
    What takes long is looked at less often: a twentieth of the time so far makes no test much longer.
    """
    started = began = time.monotonic()
    while not holds():
        ended = time.monotonic()
        waited_s = ended - started
        assert waited_s < limit_s, f"not within {limit_s:g} s: {what}"
        time.sleep(min(max(0.05, ended - began, waited_s / 20), 1.0))
        began = time.monotonic()


def processes_with(marker: str) -> list[int]:
    """Living processes whose command line contains the marker, this one excluded."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if marker in words and state != "Z":
            found.append(int(entry.name))
    return sorted(found)


def pod(name: str, *command: str, **spec: Any) -> str:
    """A pod manifest as JSON (which is YAML)."""
    container = {"name": "main", "command": list(command), **spec.pop("container", {})}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 2, **spec},
        }
    )
