"""Runs a shell script in an isolated container and prints its output; perhaps without the rights of root.

Usage: isolated_run.py DATA_DIR SCRIPT [--unprivileged]
"""

import asyncio
import ctypes
import os
import sys
from pathlib import Path

from grange.agent.container_runtime import ContainerID, LogQuery, PodSetup, Program
from grange.agent.runtimes.process.process_runtime import ProcessConfig, ProcessRuntime
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.offload import Threads

_PR_CAPBSET_DROP, _CAP_SYS_ADMIN = 24, 21


async def run(data_dir: Path, script: str) -> None:
    """Run the script and print its output and exit code."""
    config = ProcessConfig(data_dir, isolation="namespaces")
    offload = Threads("isolated", 2)
    runtime = ProcessRuntime(config, clock=LoopClock(), log=Logger("isolated"), offload=offload)
    async with runtime:
        await runtime.prepare(PodSetup("uid-1", "default", "web", "node-1"))
        target = ContainerID("uid-1", "main", 0)
        await runtime.start(target, Program(("sh", "-c", script), {"PATH": os.environ["PATH"]}), ())
        async for piece in runtime.logs.read(target, LogQuery(follow=True)):
            sys.stdout.write(piece.decode())
        [record] = runtime.pods()
        sys.stdout.write(f"exit code {record.runs[0].exit_code}\n")
        await runtime.remove("uid-1")
    offload.close()


if __name__ == "__main__":
    # A process loses what its bounding set does not have when it executes a program.
    if sys.argv[-1] == "--unprivileged" and os.geteuid() == 0:
        ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_SYS_ADMIN, 0, 0, 0)
        os.execv(sys.executable, [sys.executable, *sys.argv[:-1]])  # noqa: S606  itself
    asyncio.run(run(Path(sys.argv[1]), sys.argv[2]))
