"""Probes: when to ask, what to make of the answers (pure), and the asking (HTTP, TCP, command).

A readiness or startup probe without ``initialDelaySeconds`` is first asked at once and then in
quick succession until its first success, so that a pod is Ready within a tenth of a second of its
program; failures count towards ``failureThreshold`` only as often as the period would let them.
"""

import asyncio
import errno
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from grange.agent import grpc_health
from grange.agent.container_runtime import ContainerID, PodRuntime, RuntimeFailedError
from grange.api.kinds.pod import Container, GRPCAction, HTTPGetAction, Probe
from grange.base.clock import Clock

_FAST_GROWTH = 1.25
_MESSAGE_CHARS = 300
_HEAD_LIMIT = 16384  # bytes of an HTTP answer that are looked at
_STATUS_LINE = re.compile(rb"HTTP/\d(?:\.\d)? +([1-9]\d\d)(?:\s|$)")
_PORT = re.compile(r"[0-9]{1,5}")
# What the agent or its machine lacks: no statement about the container.
_OURS = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL, errno.EAGAIN}
)


class Kind(Enum):
    """What a probe decides."""

    STARTUP = "Startup"
    READINESS = "Readiness"
    LIVENESS = "Liveness"


class Answer(NamedTuple):
    """One answer of a probe.

    Attributes:
        ok: whether it passed; None when it could not be asked, which is no statement about the container.
        message: what was found, or why it could not be asked.
        code: status of an HTTP answer; zero where there was none.
    """

    ok: bool | None
    message: str = ""
    code: int = 0


class ProbeTarget(NamedTuple):
    """What to ask.

    Attributes:
        address: the pod's own address.
        container: for its named ports.
        target: the running attempt, for commands.
    """

    address: str
    container: Container
    target: ContainerID


def of(container: Container) -> list[tuple[Kind, Probe]]:
    """The container's probes, the one that holds back the others first."""
    found = (
        (Kind.STARTUP, container.startup_probe),
        (Kind.READINESS, container.readiness_probe),
        (Kind.LIVENESS, container.liveness_probe),
    )
    return [(kind, probe) for kind, probe in found if probe is not None and _can_ask(probe)]


def _can_ask(probe: Probe) -> bool:
    """Whether the probe has an action that is known here; one with another would never pass."""
    return any((probe.http_get, probe.tcp_socket, probe.exec))


@dataclass(slots=True)
class Record:
    """What the answers to one probe of one run amount to.

    Attributes:
        kind: what it decides.
        probe: thresholds and periods.
        fast_s: the first wait of the quick succession; zero for none.
        passing: the verdict: None until there is one.
        failures: counted failures in a row.
        message: message of the last failure; empty after a success.
        unknown: why the probe could not be asked the last time; empty where it could.
    """

    kind: Kind
    probe: Probe
    fast_s: float = 0.0
    passing: bool | None = None
    failures: int = 0
    message: str = ""
    unknown: str = ""
    _successes: int = 0
    _asked: int = 0
    _counted_at: float | None = None

    def first_wait(self) -> float:
        """Seconds from the start of the run to the first question."""
        return float(self.probe.initial_delay_seconds)

    def next_wait(self) -> float:
        """Seconds from an answer to the next question."""
        period = float(max(1, self.probe.period_seconds))
        quick = self.kind is not Kind.LIVENESS and not self.probe.initial_delay_seconds
        if self.fast_s <= 0 or not quick or self.passing:
            return period
        return min(period, self.fast_s * _FAST_GROWTH ** max(0, self._asked - 1))

    def take(self, answer: Answer, now: float) -> bool:
        """Note an answer; whether the verdict changed.

        Args:
            answer: of the probe.
            now: monotonic time.
        """
        self._asked += 1
        before = self.passing
        self.unknown = answer.message[:_MESSAGE_CHARS] if answer.ok is None else ""
        if answer.ok is None:
            return False
        if answer.ok:
            self._successes += 1
            self.failures = 0
            self._counted_at = None
            self.message = ""
            if self._successes >= max(1, self.probe.success_threshold):
                self.passing = True
        else:
            self._successes = 0
            self.message = answer.message[:_MESSAGE_CHARS]
            period = max(1, self.probe.period_seconds)
            # A hair less than the period: the wait between questions is never exact.
            if self._counted_at is None or now - self._counted_at >= period * 0.9:
                self.failures += 1
                self._counted_at = now
                if self.failures >= max(1, self.probe.failure_threshold):
                    self.passing = False
        return self.passing != before


class Prober(Protocol):
    """Asks one question of a probe."""

    async def ask(self, probe: Probe, target: ProbeTarget) -> Answer:
        """The answer; a failure to get one is an answer as well. Never raises but on cancel."""


class SystemProber:
    """Asks over sockets, and runs commands in the container.

    Args:
        runtime: for commands.
        clock: for the timeout.
    """

    def __init__(self, runtime: PodRuntime, clock: Clock) -> None:
        self._runtime = runtime
        self._clock = clock
        # As in Kubernetes: a probe wants to know whether the server answers, not who it is.
        self._tls: ssl.SSLContext | None = None

    async def ask(self, probe: Probe, target: ProbeTarget) -> Answer:
        """Ask once, within ``timeoutSeconds``."""
        limit_s = float(max(1, probe.timeout_seconds))
        try:
            if probe.exec is not None:
                return await self._command(tuple(probe.exec.command), target, limit_s)
            async with self._clock.timeout(limit_s):
                if probe.http_get is not None:
                    return await self._http(probe.http_get, target)
                if probe.tcp_socket is not None:
                    action = probe.tcp_socket
                    return await self._tcp(action.host, action.port, target)
                if probe.grpc is not None:
                    return await self._grpc(probe.grpc, target)
        except TimeoutError:
            return Answer(ok=False, message=f"no answer within {limit_s:g}s")
        except OSError as error:
            return _unasked(error) or Answer(ok=False, message=_words(error))
        except Exception as error:  # noqa: BLE001  any manifest and any program
            return Answer(ok=False, message=f"the probe cannot be asked: {_words(error)}")
        return Answer(ok=False, message="the probe has none of httpGet, tcpSocket, grpc and exec")

    async def _command(
        self, command: tuple[str, ...], target: ProbeTarget, limit_s: float
    ) -> Answer:
        if not command:
            return Answer(ok=False, message="exec names no command")
        try:
            result = await self._runtime.run(target.target, command, limit_s)
        except RuntimeFailedError as error:
            return Answer(ok=None, message=str(error))
        if result.timed_out:
            return Answer(ok=False, message=f"command took longer than {limit_s:g}s")
        output = result.output.strip()
        suffix = f": {output}" if output else ""
        return Answer(result.exit_code == 0, f"command exited with {result.exit_code}{suffix}")

    async def _tcp(self, host: str, port: int | str, target: ProbeTarget) -> Answer:
        number = port_of(port, target.container)
        if number is None:
            return _no_port(port)
        address = host or target.address
        try:
            _, writer = await asyncio.open_connection(address, number)
        except (OSError, ValueError) as error:  # UnicodeError: a host that cannot be a name
            return _unreachable(address, number, error)
        await _close(writer)
        return Answer(ok=True)

    async def _http(self, action: HTTPGetAction, target: ProbeTarget) -> Answer:
        number = port_of(action.port, target.container)
        if number is None:
            return _no_port(action.port)
        address = action.host or target.address
        tls = self._context() if action.scheme.upper() == "HTTPS" else None
        try:
            reader, writer = await asyncio.open_connection(
                address, number, ssl=tls, limit=_HEAD_LIMIT
            )
            try:
                writer.write(request(action, address, number))
                line = await reader.readline()
            finally:
                await _close(writer)
        except (OSError, ValueError) as error:
            return _unreachable(address, number, error)
        return http_answer(line)

    async def _grpc(self, action: GRPCAction, target: ProbeTarget) -> Answer:
        number = port_of(action.port, target.container)
        if number is None:
            return _no_port(action.port)
        try:
            reader, writer = await asyncio.open_connection(target.address, number)
            try:
                writer.write(grpc_health.request(f"{target.address}:{number}", action.service))
                status = await grpc_health.check(reader, writer)
            finally:
                await _close(writer)
        except grpc_health.GrpcError as error:
            return Answer(ok=False, message=f"{target.address}:{number}: {error}")
        except OSError as error:
            return _unreachable(target.address, number, error)
        return Answer(status == "SERVING", f'the service answered "{status}"')

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._tls.check_hostname = False
            self._tls.verify_mode = ssl.CERT_NONE
        return self._tls


def port_of(port: int | str, container: Container) -> int | None:
    """The number of a port that is given by number or by name; None for an unknown name."""
    if isinstance(port, int) or _PORT.fullmatch(port):
        number = int(port)
        return number if 0 < number < 65536 else None
    for item in container.ports:
        if item.name == port:
            return item.container_port
    return None


def _no_port(port: int | str) -> Answer:
    shown = str(port)[:_MESSAGE_CHARS]
    return Answer(ok=False, message=f'the container has no port named "{shown}"')


def _unreachable(address: str, port: int, error: Exception) -> Answer:
    if isinstance(error, ConnectionRefusedError):
        return Answer(
            ok=False,
            message=f"connection refused at {address}:{port} "
            "(is the program listening on $POD_IP or 0.0.0.0?)",
        )
    return _unasked(error) or Answer(ok=False, message=f"{address}:{port}: {_words(error)}")


def _unasked(error: Exception) -> Answer | None:
    """The answer where it is this process that lacks something; None where it is not."""
    if isinstance(error, OSError) and error.errno in _OURS:
        return Answer(ok=None, message=f"the agent cannot ask: {_words(error)}")
    return None


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def request(action: HTTPGetAction, address: str, port: int) -> bytes:
    """The request of an HTTP probe; given headers replace the usual ones."""
    given: Mapping[str, str] = {
        item.get("name", ""): item.get("value", "") for item in action.http_headers
    }
    headers = {"Host": f"{address}:{port}", "User-Agent": "grange-probe", "Accept": "*/*"}
    names = {name.lower() for name in given}
    headers = {key: value for key, value in headers.items() if key.lower() not in names}
    path = action.path if action.path.startswith("/") else "/" + action.path
    lines = [f"GET {path} HTTP/1.1"]
    lines += [f"{key}: {value}" for key, value in {**headers, **given}.items()]
    # No value of a manifest can add a header line.
    safe = [line.replace("\r", " ").replace("\n", " ") for line in lines]
    return "\r\n".join([*safe, "Connection: close", "", ""]).encode()


def http_answer(line: bytes) -> Answer:
    """The answer of a status line: 2xx and 3xx are success."""
    found = _STATUS_LINE.match(line)
    if found is None:
        return Answer(ok=False, message="the answer is not HTTP")
    code = int(found.group(1))
    return Answer(200 <= code < 400, f"HTTP status {code}", code)


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close at once: the rest of the answer is not needed."""
    writer.transport.abort()
