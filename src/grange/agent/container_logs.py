"""Container logs: the line format, and which part of it is asked for.

A stored line is ``<RFC 3339 time with nanoseconds> <stdout|stderr> <F|P> <text>``, the format of
the container runtime interface. ``P`` marks a part of a line: the next line of the same stream
continues it. Everything here is pure; runtimes do the reading.
"""

from collections.abc import AsyncGenerator, Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

from grange.agent.container_runtime import ContainerID, LogQuery, PodRuntime
from grange.api import timestamps
from grange.api.kinds.pod import FINISHED
from grange.api.meta import Document
from grange.api.status import BadRequest, NotFound
from grange.base.clock import Clock


class Line(NamedTuple):
    """One stored line."""

    time: bytes
    stream: bytes
    partial: bool
    text: bytes


def parse(raw: bytes) -> Line | None:
    """A stored line without its newline; None for one that is damaged."""
    fields = raw.split(b" ", 3)
    if len(fields) < 4 or fields[2] not in {b"F", b"P"}:
        return None
    return Line(fields[0], fields[1], fields[2] == b"P", fields[3])


def stamp(moment: datetime) -> bytes:
    """The time as lines carry it; such times compare as bytes."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()


def tail(raw_lines: list[bytes], count: int) -> tuple[list[bytes], int]:
    """The stored lines that make up the last ``count`` whole lines, and how many are missing.

    A line in parts counts once; an unfinished last line counts as one.
    """
    if count <= 0:
        return [], 0
    missing = count
    start = len(raw_lines)
    unfinished = True  # whether the line that ends at ``start`` still has to be counted
    for index in range(len(raw_lines) - 1, -1, -1):
        line = parse(raw_lines[index])
        ends_line = line is None or not line.partial
        if ends_line or unfinished:
            if missing == 0:
                break
            missing -= 1
            unfinished = False
        start = index
    return raw_lines[start:], missing


class Renderer:
    """Turns stored lines into what the reader asked for; remembers where a line was cut.

    Args:
        query: what was asked for; ``tail_lines`` and ``follow`` are the caller's business.
    """

    def __init__(self, query: LogQuery) -> None:
        self._since = stamp(query.since) if query.since is not None else b""
        self._timestamps = query.timestamps
        self._left = query.limit_bytes
        self._open: dict[bytes, bool] = {}

    @property
    def full(self) -> bool:
        """Whether the byte limit is reached: nothing more will come out."""
        return self._left is not None and self._left <= 0

    def render(self, raw_lines: Iterable[bytes]) -> bytes:
        """The text of these lines, cut at the byte limit."""
        out = []
        for raw in raw_lines:
            line = parse(raw)
            if line is None or line.time < self._since:
                continue
            if self._timestamps and not self._open.get(line.stream, False):
                out.append(line.time + b" ")
            out.append(line.text if line.partial else line.text + b"\n")
            self._open[line.stream] = line.partial
        data = b"".join(out)
        if self._left is not None:
            data = data[: max(0, self._left)]
            self._left -= len(data)
        return data


class LogRequest(Protocol):
    """The query parameters of ``pods/log``, as the API server decodes them."""

    @property
    def container(self) -> str:
        """Which container; empty for the only one."""

    @property
    def follow(self) -> bool:
        """Go on while the container runs."""

    @property
    def previous(self) -> bool:
        """The attempt before the newest one."""

    @property
    def since_seconds(self) -> int | None:
        """Only lines that are at most so old."""

    @property
    def since_time(self) -> str:
        """Only lines since this RFC 3339 instant; empty for all."""

    @property
    def tail_lines(self) -> int | None:
        """Only so many last lines."""

    @property
    def timestamps(self) -> bool:
        """Times before the lines."""

    @property
    def limit_bytes(self) -> int | None:
        """Stop after so many bytes."""


def logs_gone(pod: Document, why: str) -> NotFound:
    """The error about the logs of a finished pod that nothing has any more."""
    name = str(pod["metadata"]["name"])
    return NotFound(
        f'logs of pod "{name}" are gone: {why}; logs are on the node only: follow them with '
        "grange logs -f while the pod runs, or have the program write them elsewhere",
        kind="pods",
        name=name,
    )


class AgentLogs:
    """Answers ``pods/log`` from a runtime; has the shape of the API server's log source.

    Args:
        runtime: where the pods run.
        clock: for ``sinceSeconds``.
    """

    def __init__(self, runtime: PodRuntime, clock: Clock) -> None:
        self._runtime = runtime
        self._clock = clock

    async def read(self, pod: Document, options: LogRequest) -> AsyncGenerator[bytes, None]:
        """The log that was asked for, in pieces; the first is empty and shows that it is open.

        Raises:
            BadRequest: no such container, or none is named, or it has not started yet, or
                there is no earlier attempt.
            NotFound: the pod has finished, and its log is not here any more.
        """
        target = self._target(pod, options)
        since = timestamps.parse(options.since_time) if options.since_time else None
        if options.since_seconds is not None:
            since = _before(self._clock.now(), options.since_seconds)
        query = LogQuery(
            follow=options.follow and not options.previous,
            since=since,
            tail_lines=options.tail_lines,
            timestamps=options.timestamps,
            limit_bytes=options.limit_bytes,
        )
        yield b""
        pieces = self._runtime.logs.read(target, query)
        try:
            async for piece in pieces:
                yield piece
        finally:
            await pieces.aclose()

    def _target(self, pod: Document, options: LogRequest) -> ContainerID:
        name = str(pod["metadata"]["name"])
        container = container_of(pod, options.container)
        uid = str(pod["metadata"]["uid"])
        attempts = [
            run.id
            for record in self._runtime.pods(uid)
            for run in record.runs
            if run.id.container == container
        ]
        if not attempts and (pod.get("status") or {}).get("phase") in FINISHED:
            node = (pod.get("spec") or {}).get("nodeName", "")
            raise logs_gone(pod, f"node {node} has removed what was left of the pod")
        if not attempts:
            state = waiting_reason(pod, container)
            raise BadRequest(
                f'container "{container}" in pod "{name}" is waiting to start: {state}',
                kind="pods",
                name=name,
            )
        if not options.previous:
            return max(attempts)
        if len(attempts) < 2:
            raise BadRequest(
                f'previous terminated container "{container}" in pod "{name}" not found: '
                "it has not been restarted",
                kind="pods",
                name=name,
            )
        return sorted(attempts)[-2]


def _before(now: datetime, seconds: int) -> datetime | None:
    """So many seconds ago; None for longer ago than there are dates."""
    try:
        return now - timedelta(seconds=seconds)
    except OverflowError:
        return None


def container_of(pod: Document, asked: str) -> str:
    """The container that is meant.

    Raises:
        BadRequest: there is none of that name, or there are several and none is named.
    """
    spec = pod.get("spec", {})
    names = [str(item["name"]) for item in spec.get("containers", [])]
    others = [str(item["name"]) for item in spec.get("initContainers", [])]
    added = [str(item["name"]) for item in spec.get("ephemeralContainers", [])]
    name = str(pod["metadata"]["name"])
    if asked:
        if asked in (*names, *others, *added):
            return asked
        raise BadRequest(f"container {asked} is not valid for pod {name}")
    if len(names) == 1:
        return names[0]
    raise BadRequest(
        f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
        + (f" or one of the init containers: [{' '.join(others)}]" if others else "")
    )


def waiting_reason(pod: Document, container: str) -> str:
    """Why a container has not started, from its status."""
    status = pod.get("status", {})
    lists = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    for item in [item for name in lists for item in status.get(name, [])]:
        if item.get("name") == container:
            waiting = item.get("state", {}).get("waiting", {})
            return ": ".join(filter(None, (waiting.get("reason"), waiting.get("message")))) or "?"
    return "not yet scheduled" if not pod.get("spec", {}).get("nodeName") else "not yet created"
