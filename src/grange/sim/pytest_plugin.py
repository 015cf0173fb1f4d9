"""Runs ``async def test_…`` on virtual time and fails a test that leaves anything behind.

A test marked ``e2e`` runs on a real loop (uvloop) instead and may open sockets; every other test is
refused them. Asynchronous fixtures, also with ``yield``, live on the loop of their test. After each
test there must be no task, thread or descriptor that was not there before it, and no error that
was not retrieved.

Fixtures: ``clock``, ``rng``, ``log``, ``records``, and ``seed``: a test that takes it runs once for
each of ``--seeds N`` seeds; without the option for as many as ``@pytest.mark.seeds(N)`` gives, or
for two. ``--seed N`` replays one, and is the seed of ``rng``.
"""

import asyncio
import functools
import hashlib
import inspect
import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
import uvloop

from grange.app import gc_tuning
from grange.base.clock import Clock, LoopClock
from grange.base.log import Logger, TextFormatter, facts_of, new_record
from grange.base.rng import Stream
from grange.sim.loop import VirtualLoop
from grange.sim.runner import Leak, Runner

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
Records = list[tuple[str, dict[str, object]]]
# Loop's time, wall time, name, level, event, facts, error.
_Line = tuple[float | None, float, str, int, str, dict[str, object], BaseException | None]

SEEDS = 2
LAST_RECORDS = 2000
_THREAD_GRACE_S = 2.0  # real seconds for a thread that was asked to end
_TOLERATED = (".hypothesis", ".pytest_cache", "/dev/urandom", "/dev/null", "anon_inode:[pidfd]")

_runner = pytest.StashKey[Runner]()
_before = pytest.StashKey["_Belongings"]()
_log_tap = pytest.StashKey["_LogTap"]()


class SocketRefused(RuntimeError):
    """A test that is not marked ``e2e`` reached for the network."""


# --- sockets -----------------------------------------------------------------------------------


class _SocketGuard:
    """Refuses to bind or connect unless the running test may."""

    NAMES = ("bind", "connect", "connect_ex")

    def __init__(self) -> None:
        self.open = False
        self._saved: dict[str, Callable[..., object]] = {}

    def install(self) -> None:
        for name in self.NAMES:
            original = getattr(socket.socket, name)
            self._saved[name] = original
            setattr(socket.socket, name, self._guarded(original))

    def remove(self) -> None:
        for name in self._saved:
            delattr(socket.socket, name)  # the originals are inherited
        self._saved.clear()

    def _guarded(self, original: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(original)
        def guarded(sock: socket.socket, address: object, *rest: object) -> object:
            if not self.open:
                raise SocketRefused(f"a socket for {address!r}: mark the test e2e if it needs one")
            return original(sock, address, *rest)

        return guarded


_guard = _SocketGuard()


# --- what a test owns --------------------------------------------------------------------------


def _descriptors() -> dict[int, str]:
    """Open descriptors and what they point to; empty where the system does not list them."""
    found: dict[int, str] = {}
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        return found
    for name in names:
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the one that listed the directory
    return found


class _Belongings:
    """Threads and descriptors at one moment."""

    def __init__(self) -> None:
        self.threads = set(threading.enumerate())
        self.descriptors = _descriptors()

    def allow(self, before: "_Belongings") -> None:
        """Count what was made since that moment as there before."""
        now = _Belongings()
        self.threads |= now.threads - before.threads
        self.descriptors |= dict(now.descriptors.items() - before.descriptors.items())

    def leaks(self) -> list[str]:
        """What is there now and was not then."""
        found = []
        for thread in threading.enumerate():
            if thread not in self.threads and not isinstance(thread, threading._DummyThread):
                thread.join(0.0 if thread.daemon else _THREAD_GRACE_S)
                if thread.is_alive():
                    found.append(f"thread left running: {thread.name}")
        for number, target in sorted(_descriptors().items()):
            if self.descriptors.get(number) != target and not any(
                word in target for word in _TOLERATED
            ):
                found.append(f"descriptor left open: {number} → {target}")
        return found


def _allow_wider(request: pytest.FixtureRequest, before: _Belongings) -> None:
    """What a fixture of a module or session opens stays when the test ends."""
    item = getattr(request, "_pyfuncitem", None)  # pytest has no public way down to the test
    if isinstance(item, pytest.Item) and _before in item.stash:
        item.stash[_before].allow(before)


def _is_e2e(item: pytest.Item) -> bool:
    return item.get_closest_marker("e2e") is not None


def _new_loop(item: pytest.Item) -> asyncio.AbstractEventLoop:
    return uvloop.new_event_loop() if _is_e2e(item) else VirtualLoop()


@functools.cache
def _warm_uvloop() -> None:
    """The first loop opens a pipe for signals that stays for the life of the process."""
    uvloop.new_event_loop().close()


def _runner_of(item: pytest.Item) -> Runner:
    if _runner not in item.stash:
        item.stash[_runner] = Runner(_new_loop(item))
    return item.stash[_runner]


# --- hooks -------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--seed`` and ``--seeds``."""
    parser.addoption("--seed", type=int, default=None, help="replay this seed only")
    parser.addoption("--seeds", type=int, default=None, help="seeds for each simulation")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes ``seed`` runs once for each."""
    if "seed" in metafunc.fixturenames:
        only, count = (metafunc.config.getoption(name) for name in ("--seed", "--seeds"))
        if count is None:
            mark = metafunc.definition.get_closest_marker("seeds")
            count = mark.args[0] if mark is not None else SEEDS
        metafunc.parametrize("seed", range(count) if only is None else [only])


def pytest_collection_finish() -> None:
    """Look for garbage among the thousands of tests no more: that took a twentieth of their time."""
    gc_tuning.settle()


def pytest_configure() -> None:
    """Close the network, and look for reference cycles as seldom as servers do."""
    gc_tuning.tune()
    _guard.install()


def pytest_unconfigure() -> None:
    """Open it again."""
    _guard.remove()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note what is there, and whether sockets are allowed."""
    _guard.open = _is_e2e(item)
    if _guard.open:
        _warm_uvloop()
    item.stash[_before] = _Belongings()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Close the loop after the last fixture and compare with what was there."""
    try:
        result = yield
    finally:
        complaints = []
        if (runner := item.stash.get(_runner, None)) is not None:
            try:
                runner.close()
            except Leak as leak:
                complaints.append(str(leak))
            del item.stash[_runner]
        complaints += item.stash[_before].leaks()
        _guard.open = False
    if complaints:
        pytest.fail("\n".join(complaints), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Run asynchronous fixtures on the loop of the test; let wider fixtures keep what they open."""
    function: Any = fixturedef.func
    is_generator = inspect.isasyncgenfunction(function)
    is_coroutine = inspect.iscoroutinefunction(function)
    item = request.node
    if not isinstance(item, pytest.Item):
        if is_generator or is_coroutine:
            pytest.fail(f"{fixturedef.argname}: an asynchronous fixture lives for one test only")
        before = _Belongings()
        try:
            return (yield)
        finally:
            _allow_wider(request, before)
    if not (is_generator or is_coroutine):
        return (yield)
    runner = _runner_of(item)

    def opened(**arguments: object) -> object:
        if is_coroutine:
            return runner.run(function(**arguments), name=fixturedef.argname)
        held = runner.open(function(**arguments), name=fixturedef.argname)
        fixturedef.addfinalizer(held.close)
        return held.value

    fixturedef.func = opened  # type: ignore[misc]  # final, but the only way in
    try:
        return (yield)
    finally:
        fixturedef.func = function  # type: ignore[misc]  # as above


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run a coroutine function to its end."""
    __tracebackhide__ = True
    function = pyfuncitem.obj
    hypothesis_handle = getattr(function, "hypothesis", None)
    if inspect.iscoroutinefunction(function):
        runner = _runner_of(pyfuncitem)

        @functools.wraps(function)
        def run(**arguments: object) -> None:
            __tracebackhide__ = True
            runner.run(function(**arguments), name="test")

        pyfuncitem.obj = run
    elif hypothesis_handle is not None and inspect.iscoroutinefunction(
        hypothesis_handle.inner_test
    ):
        inner = hypothesis_handle.inner_test

        @functools.wraps(inner)
        def example(*positional: object, **arguments: object) -> None:
            # Each example has its own loop, so that it starts at time zero when replayed.
            runner = Runner(_new_loop(pyfuncitem))
            try:
                runner.run(inner(*positional, **arguments), name="example")
            finally:
                runner.close()

        hypothesis_handle.inner_test = example
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the records with their facts to a failure."""
    report = yield
    if report.failed and (tap := item.stash.get(_log_tap, None)) and (text := tap.text()):
        report.sections.append((f"Records during {call.when}, the last {LAST_RECORDS}", text))
    if call.when == "teardown" and _log_tap in item.stash:
        del item.stash[_log_tap]  # pytest keeps its items, and there may be thousands
    return report


# --- fixtures ----------------------------------------------------------------------------------


@pytest.fixture
def clock(request: pytest.FixtureRequest) -> Clock:
    """The clock of the test's loop; virtual ones start at 2026-01-01T00:00:00Z."""
    return LoopClock(None if _is_e2e(request.node) else EPOCH)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> Stream:
    """A stream seeded by the test's name, or by ``--seed``."""
    name = request.node.name
    seed = request.config.getoption("--seed")
    if seed is None:
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7])
    return Stream(seed, name)


class _LogTap(logging.Handler):
    """Keeps what is logged as values: text is made of the last ones, and only when a test fails.

    Args:
        lists: whether the test looks at its records.
    """

    def __init__(self, *, lists: bool) -> None:
        super().__init__(logging.DEBUG)
        self.records: Records = []
        self._lists = lists
        self._last: deque[_Line] = deque(maxlen=LAST_RECORDS)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record of a logger that the test did not get from here."""
        crash = record.exc_info[1] if record.exc_info else None
        self.keep(record.name, record.levelno, record.getMessage(), facts_of(record), crash)

    def keep(
        self,
        name: str,
        level: int,
        event: str,
        facts: dict[str, object],
        crash: BaseException | None,
    ) -> None:
        """Keep what a record would be made of."""
        if self._lists:
            self.records.append((event, facts))
        try:
            at = asyncio.get_running_loop().time()
        except RuntimeError:
            at = None
        self._last.append((at, time.time(), name, level, event, facts, crash))

    def text(self) -> str:
        """The last records, a line each."""
        form, lines = TextFormatter().format, []
        for at, created, name, level, event, facts, crash in self._last:
            record = new_record(name, level, event, facts, crash)
            record.created = created
            lines.append(("" if at is None else f"{at:.3f}s ") + form(record))
        return "\n".join(lines)


class _TappedLogger(Logger):
    """Hands over what is logged without a record of it: a simulation logs tens of thousands."""

    __slots__ = ("_tap",)

    def __init__(self, tap: _LogTap, facts: Mapping[str, object]) -> None:
        super().__init__("test", facts)
        self._tap = tap

    def bind(self, /, **facts: object) -> Logger:
        """The same logger with more facts on every record."""
        return _TappedLogger(self._tap, {**self._facts, **facts})

    def _log(
        self,
        level: int,
        event: str,
        facts: dict[str, object],
        crash: BaseException | None = None,
    ) -> None:
        self._tap.keep(self._logger.name, level, event, self._with_bound(facts), crash)


@pytest.fixture
def _tap(request: pytest.FixtureRequest) -> Iterator[_LogTap]:
    tap = request.node.stash[_log_tap] = _LogTap(lists="records" in request.fixturenames)
    root = logging.getLogger("grange")
    level, propagate = root.level, root.propagate
    root.addHandler(tap)
    root.setLevel(logging.DEBUG)
    root.propagate = False
    yield tap
    root.removeHandler(tap)
    root.setLevel(level)
    root.propagate = propagate


@pytest.fixture
def records(_tap: _LogTap) -> Records:
    """Every record so far: (event, facts), in order, at every level."""
    return _tap.records


@pytest.fixture
def log(_tap: _LogTap) -> Logger:
    """A logger whose records the ``records`` fixture lists."""
    return _TappedLogger(_tap, {})
