"""A server in small: opens a runtime, starts three chatty containers, and waits to be killed."""

import asyncio
import os
import sys
from pathlib import Path

from grange.agent.container_runtime import ContainerID, PodSetup, Program
from grange.agent.runtimes.process.process_runtime import ProcessConfig, ProcessRuntime
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.offload import Threads

UID = "8a1c2f0e-0000-4000-8000-000000000001"
CHATTY = "while :; do echo tick; sleep 0.02; done"


async def own(data_dir: Path) -> None:
    """Start and wait."""
    runtime = ProcessRuntime(
        ProcessConfig(data_dir), clock=LoopClock(), log=Logger("owner"), offload=Threads("owner", 2)
    )
    async with runtime:
        await runtime.prepare(PodSetup(UID, "default", "web", "node-1"))
        program = Program(("sh", "-c", CHATTY), {"PATH": os.environ["PATH"]})
        for name in ("a", "b", "c"):
            await runtime.start(ContainerID(UID, name, 0), program, ())
        (data_dir / "ready").write_text("ready\n")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(own(Path(sys.argv[1])))
