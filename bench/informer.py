"""What an event costs an informer, and what its copy costs the process.

Alone: ``python -m bench.informer``.
"""

import asyncio
import gc
import sys
import time
import tracemalloc
from collections.abc import AsyncGenerator

from bench.api import BODY
from grange.api import codec
from grange.api.http import ADMIN, Request, Response
from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.client.client import Client
from grange.client.transports.inprocess import InProcess
from grange.client.watcher import Frames
from grange.reconcile.informer import Informer

PODS = 20_000
ROUNDS = 3


def _lines(kind: str, first: int) -> list[bytes]:
    """An event for each pod, each with a different name, UID and version."""
    document = codec.decode_document(BODY)
    meta = document["metadata"]
    lines = []
    for number in range(PODS):
        meta["name"] = f"web-{number}"
        meta["uid"] = f"6d3f0d0c-5a0b-4d6a-9b43-{number:012}"
        meta["resourceVersion"] = str(first + number)
        lines.append(b'{"type":"%s","object":%s}\n' % (kind.encode(), codec.encode(document)))
    return lines


async def _followed(lines: list[bytes]) -> tuple[float, Informer[Pod]]:
    """Seconds of processor time an event, each in a separate chunk; and the informer."""
    done = asyncio.Event()

    async def chunks() -> AsyncGenerator[bytes, None]:
        for line in lines:
            yield line
        done.set()
        await asyncio.Event().wait()

    async def handle(request: Request) -> Response:
        if request.query.get("watch"):
            return Response(200, chunks=chunks())
        return Response(200, b'{"metadata":{"resourceVersion":"1"},"items":[]}')

    client = Client(InProcess(handle, ADMIN))
    tools = {"clock": LoopClock(), "rng": Stream(1), "log": Logger("bench")}
    informer = Informer(client, POD, **tools)  # type: ignore[arg-type]  # a bag of tools of several types
    informer.store.add_index("node", lambda pod: (pod.spec.node_name,))
    received: list[int] = [0]

    def note(*_: Pod) -> None:
        received[0] += 1

    informer.add_handler(note, note, note)
    start = time.process_time()
    task = asyncio.get_running_loop().create_task(informer.run())
    await done.wait()
    spent = time.process_time() - start
    task.cancel()
    await asyncio.wait([task])
    assert received[0] >= PODS
    return spent / len(lines), informer


async def measure() -> dict[str, float]:
    """Microseconds an event (decoding apart), bytes a view, milliseconds a full collection."""
    lines = _lines("ADDED", 2) + _lines("MODIFIED", 2 + PODS)
    gc.disable()  # what the collector adds depends on the rest of the process; it is measured apart
    frames = Frames(POD)
    decode = whole = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        kept = [frames.feed(line) for line in lines]
        decode = min(decode, (time.process_time() - start) / len(lines))
        del kept
        spent, _ = await _followed(lines)
        whole = min(whole, spent)
    _, informer = await _followed(lines)
    gc.collect()
    start = time.process_time()
    gc.collect()
    collection = time.process_time() - start
    assert len(informer.store) == PODS
    del informer
    gc.collect()
    tracemalloc.start(1)
    before, _ = tracemalloc.get_traced_memory()
    kept = [frames.feed(line) for line in lines[:PODS]]
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        "decode_us": decode * 1e6,
        "apply_us": (whole - decode) * 1e6,
        "view_bytes": (after - before) / PODS - sys.getsizeof(kept[0]),
        "collect_ms": collection * 1e3,
    }


if __name__ == "__main__":
    for name, value in asyncio.run(measure()).items():
        print(f"{name:16} {value:8.1f}")
