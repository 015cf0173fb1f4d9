"""The plugin runs asynchronous tests on virtual time and fails those that leave something behind."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from grange.base.clock import Clock, LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.sim.loop import VirtualLoop
from grange.sim.pytest_plugin import EPOCH, Records, SocketRefused


@pytest.fixture
async def started(clock: Clock) -> float:
    await clock.sleep(5)
    return clock.monotonic()


@pytest.fixture
async def nursery(clock: Clock) -> AsyncGenerator[Nursery, None]:
    async with Nursery() as nursery:
        yield nursery
        await clock.sleep(3)


async def test_asynchronous_fixtures_share_the_loop_of_their_test(
    clock: Clock, started: float, nursery: Nursery
) -> None:
    assert started == 5.0
    await clock.sleep(3600)
    nursery.start(clock.sleep(3600))
    assert clock.monotonic() == 3605
    assert clock.now().isoformat() == "2026-01-01T01:00:05+00:00"
    assert isinstance(asyncio.get_running_loop(), VirtualLoop)


@pytest.mark.e2e
async def test_e2e_runs_on_a_real_loop_with_sockets(clock: Clock) -> None:
    assert type(asyncio.get_running_loop()).__module__.startswith("uvloop")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
    assert clock.now().year >= 2025


def test_sockets_are_refused_and_pairs_are_not() -> None:
    with socket.socket() as refused:
        with pytest.raises(SocketRefused, match="mark the test e2e"):
            refused.bind(("127.0.0.1", 0))
        with pytest.raises(SocketRefused):
            refused.connect(("127.0.0.1", 1))
    for end in socket.socketpair():
        end.close()


def test_rng_is_seeded_by_the_name_of_the_test(rng: Stream) -> None:
    assert rng.name == "test_rng_is_seeded_by_the_name_of_the_test"
    assert rng.uid() == Stream(rng.seed, rng.name).uid()


def test_log_is_recorded_as_values(log: Logger, records: Records) -> None:
    log.bind(node="n").debug("seen", n=1)
    assert records == [("seen", {"node": "n", "n": 1})]


@settings(max_examples=20, deadline=None)
@given(naps=st.lists(st.floats(0, 100), max_size=5))
async def test_each_example_starts_at_time_zero(naps: list[float]) -> None:
    clock = LoopClock(EPOCH)
    assert clock.monotonic() == 0.0
    for nap in naps:
        await clock.sleep(nap)
    assert clock.monotonic() == pytest.approx(sum(naps))


BAD = """
import asyncio, os, threading
from contextlib import asynccontextmanager
import pytest
from grange.base.tasks import Nursery

KEPT = []

async def test_good(): await asyncio.sleep(1)

async def test_leaks_task():
    KEPT.append(asyncio.get_running_loop().create_task(asyncio.sleep(9), name="stray"))

def test_leaks_thread():
    KEPT.append(threading.Event())
    thread = threading.Thread(target=KEPT[-1].wait, name="stray-thread", daemon=True)
    thread.start()

def test_leaks_descriptor():
    KEPT.append(os.pipe())

async def test_drops_generator():
    async def numbers():
        for n in range(9):
            yield n
    async for n in numbers():
        break

async def test_never_awaits():
    asyncio.sleep(1)

async def test_never_looks_at_error():
    async def broken(): raise KeyError("unseen")
    asyncio.get_running_loop().create_task(broken())
    await asyncio.sleep(1)

def test_drops_file():
    open(__file__)

async def test_deadlock():
    await asyncio.get_running_loop().create_future()

@pytest.fixture
async def failing_background():
    async def fail():
        await asyncio.sleep(1)
        raise KeyError("background")
    async with Nursery() as nursery:
        nursery.start(fail())
        yield

async def test_background_fails(failing_background):
    await asyncio.sleep(5)

@pytest.fixture(scope="module")
async def too_wide(): return 1

async def test_wide_fixture(too_wide): pass

@pytest.fixture(scope="module")
def wide():
    ends = os.pipe()
    yield ends
    for end in ends: os.close(end)

def test_wide_fixture_keeps_what_it_opens(wide): pass

def test_wide_fixture_once_more(wide): pass
"""


def test_everything_left_behind_fails_its_test(tmp_path: Path) -> None:
    """One run of pytest over a file of bad tests; each must be blamed for its own fault."""
    (tmp_path / "test_bad.py").write_text(BAD)
    options = ["-p", "grange.sim.pytest_plugin", "-p", "no:cacheprovider", "-W", "error", "-rA"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:grange", *options, "test_bad.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    summary = done.stdout.rpartition("short test summary info")[2]
    verdicts: dict[str, set[str]] = {}
    for line in summary.splitlines():
        word, _, rest = line.partition(" test_bad.py::")
        if rest:
            verdicts.setdefault(rest.partition(" - ")[0], set()).add(word)
    good = {name for name, words in verdicts.items() if words == {"PASSED"}}
    assert good == {
        "test_good",
        "test_wide_fixture_keeps_what_it_opens",
        "test_wide_fixture_once_more",
    }, done.stdout
    for message in (
        "task left running: stray",
        "thread left running: stray-thread",
        "descriptor left open",
        "was dropped before its end: use contextlib.aclosing()",
        "coroutine 'sleep' was never awaited",
        "Task exception was never retrieved: KeyError: 'unseen'",
        "unclosed file",
        "nothing is runnable and no timer is set",
        "KeyError: 'background'",
        "an asynchronous fixture lives for one test only",
    ):
        assert message in done.stdout
