"""An event loop in a thread for as long as a call takes, for programs that are not asynchronous.

A loop that stays would keep a thread that is lost at a fork; where the caller has a loop already,
as in a notebook, it cannot be used for the call.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_AHEAD = 1_000


@contextmanager
def _loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs; what is unfinished at the end of the block is cancelled."""
    ready, end = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        ready.set()
        await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="grange", daemon=True)
    thread.start()
    ready.wait()
    try:
        yield loops[0]
    finally:
        loops[0].call_soon_threadsafe(end.set)
        thread.join()


def call(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; an interrupt of the caller cancels it."""
    with _loop() as loop:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()


def iterate(make: Callable[[], AsyncGenerator[T, None]]) -> Iterator[T]:
    """The items of an asynchronous generator, which is closed when the caller stops."""
    queue: asyncio.Queue[tuple[T] | None] = asyncio.Queue(_AHEAD)

    async def produce() -> None:
        try:
            async with aclosing(make()) as items:
                async for item in items:
                    await queue.put((item,))
        except Exception:
            await queue.put(None)
            raise
        await queue.put(None)

    with _loop() as loop:
        producer = asyncio.run_coroutine_threadsafe(produce(), loop)
        while item := asyncio.run_coroutine_threadsafe(queue.get(), loop).result():
            yield item[0]
        producer.result()
