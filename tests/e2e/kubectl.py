"""The real kubectl, as people run it, with a separate home directory."""

import asyncio
import json
import os
import shutil
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PINNED = Path(__file__).resolve().parents[2] / ".cache" / "bin" / "kubectl"


def find() -> Path:
    """The pinned kubectl, or the one on the path.

    Raises:
        FileNotFoundError: there is none; states how to get it.
    """
    if PINNED.exists():
        return PINNED
    if found := shutil.which("kubectl"):
        return Path(found)
    raise FileNotFoundError("no kubectl: run `python scripts/get_kubectl.py`")


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def column(self) -> list[str]:
        """The first word of every line after the heading."""
        return [line.split()[0] for line in self.lines[1:]]


@dataclass(frozen=True)
class Kubectl:
    """kubectl with one kubeconfig."""

    home: Path
    kubeconfig: Path
    more: tuple[tuple[str, str], ...] = ()

    async def start(self, *words: str) -> Process:
        """Start it; the caller reads and ends it."""
        return await asyncio.create_subprocess_exec(
            str(find()),
            *words,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={
                "HOME": str(self.home),
                "KUBECONFIG": str(self.kubeconfig),
                "PATH": os.environ["PATH"],
                **dict(self.more),
            },
        )

    async def __call__(self, *words: str, stdin: str = "") -> Outcome:
        """Run it to its end."""
        process = await self.start(*words)
        out, err = await process.communicate(stdin.encode())
        return Outcome(process.returncode or 0, out.decode(), err.decode())

    async def ok(self, *words: str, stdin: str = "") -> Outcome:
        """Run what must succeed."""
        outcome = await self(*words, stdin=stdin)
        assert outcome.code == 0, (words, outcome)
        return outcome
