"""Evidence that goes wrong in simulated worlds: logs break off, artifacts vanish, the disk is full."""

from collections.abc import AsyncGenerator
from dataclasses import replace as replaced
from pathlib import Path

from grange.api.http import Request, Response
from grange.api.kinds.testsession import FINAL_PHASES, TestSession
from grange.base.clock import Clock
from grange.base.offload import Inline
from grange.base.rng import Stream
from grange.client.errors import StreamBroken
from grange.client.transport import Transport
from grange.controllers.sharded import SHARDED, ShardedController
from grange.controllers.testsession.controller import NAME, SessionService
from grange.controllers.testsession.evidence_recorder import EvidenceTools, key_of
from grange.controllers.testsession.log_collector import LogCollector
from grange.evidence import log_file
from grange.evidence.evidence_directory import EvidenceDirectory, EvidenceError, EvidenceLimits
from grange.evidence.evidence_paths import EvidenceKey
from grange.evidence.log_file import LogFile
from grange.evidence.metric_series import MetricSeries
from grange.evidence.session_record import SessionRecord
from grange.reconcile.deps import Deps

LINES = tuple(f'{{"line": {number}}}' for number in range(3))
"""What every container writes."""

_STAMP = "2026-01-01T00:00:0{}.5Z"


class EvidenceFaults:
    """When something fails.

    Args:
        draw: decides.

    Attributes:
        calm: nothing fails any more.
        struck: how often something did.
        chances: how often something could have.
    """

    def __init__(self, draw: Stream) -> None:
        self.calm = False
        self.struck = self.chances = 0
        self._draw = draw

    def strike(self, one_in: int) -> bool:
        """Whether it fails this time."""
        self.chances += not self.calm
        struck = not self.calm and self._draw.integer(1, one_in) == 1
        self.struck += struck
        return struck


class LogTap:
    """Answers requests for logs, whose streams break off; other requests pass."""

    def __init__(self, inner: Transport, faults: EvidenceFaults, clock: Clock) -> None:
        self._inner, self._faults, self._clock = inner, faults, clock

    async def send(self, request: Request) -> Response:
        """Answer."""
        if not request.path.endswith("/log"):
            return await self._inner.send(request)
        path = request.path.removesuffix("/log")
        found = await self._inner.send(replaced(request, path=path, query={}))
        if found.status != 200:
            return found
        last = int(request.query.get("tailLines", len(LINES)))
        return Response(200, chunks=self._lines(request.query.get("sinceTime", ""), last))

    async def close(self) -> None:
        """Close the transport behind."""
        await self._inner.close()

    async def _lines(self, since: str, last: int) -> AsyncGenerator[bytes, None]:
        for number, line in [*enumerate(LINES)][-last:]:
            stamp = _STAMP.format(number)
            if self._faults.strike(4):
                raise StreamBroken("cut")
            if stamp[:19] >= since[:19]:
                yield f"{stamp} {line}\n".encode()
            await self._clock.sleep(0.2)


def tap_logs(inner: Transport, name: str, *, faults: EvidenceFaults, clock: Clock) -> Transport:
    """A tap of a world for the logs of all components; only members of the farm read any."""
    return LogTap(inner, faults, clock)


class FullDirectory(EvidenceDirectory):
    """A directory on a disk that is full now and then."""

    def __init__(self, root: Path, faults: EvidenceFaults) -> None:
        super().__init__(root, EvidenceLimits(free_bytes=0))
        self._faults = faults

    def open_log(self, key: EvidenceKey, attempt: int, pod: str, container: str) -> LogFile:
        """The log, or an error of the disk."""
        self._check()
        return super().open_log(key, attempt, pod, container)

    def write_record(self, key: EvidenceKey, record: SessionRecord) -> None:
        """Write the record, or fail as the disk does."""
        self._check()
        super().write_record(key, record)

    def _check(self) -> None:
        if self._faults.strike(6):
            raise EvidenceError("no space left on device; check the disk")


class VanishingArtifacts:
    """Every pod wrote one file; some are links by the time they are read."""

    def __init__(self, root: Path, faults: EvidenceFaults) -> None:
        self._root, self._faults = root, faults

    def directory(self, pod_uid: str) -> Path | None:
        """Where a pod's files are."""
        place = self._root / pod_uid
        place.mkdir(parents=True, exist_ok=True)
        file = place / "report"
        file.unlink(missing_ok=True)
        if self._faults.strike(4):
            file.symlink_to("/etc/hostname")
        else:
            file.write_bytes(b"done")
        return place


class EvidenceMembers:
    """The evidence of the members of a farm, a directory each.

    Args:
        root: of all directories.
        faults: when something fails.

    Attributes:
        judged: how many logs ``missing`` looked at.
    """

    def __init__(self, root: Path, faults: EvidenceFaults) -> None:
        self.judged = 0
        self._root, self._faults = root, faults

    def collector(self, member: str, deps: Deps) -> LogCollector:
        """What a process of a member collects with."""
        root = self._root / member
        tools = EvidenceTools(
            client=deps.client,
            directory=FullDirectory(root / "sessions", self._faults),
            series=MetricSeries(root / "series.db"),
            clock=deps.clock,
            log=deps.log,
            offload=Inline(),
            artifacts=VanishingArtifacts(self._root / "pods", self._faults),
        )
        return LogCollector(tools)

    def sharded(self, collector: LogCollector) -> dict[str, ShardedController[TestSession]]:
        """The controller of sessions, with a collector."""

        def made(deps: Deps) -> SessionService:
            return SessionService(deps, collector=collector)

        return {NAME: replaced(SHARDED[NAME], create=made)}

    def missing(self, sessions: list[TestSession]) -> list[str]:
        """What is not kept of sessions that ended and whose status has all evidence as complete."""
        found = []
        for session in sessions:
            status = session.status
            if status.phase not in FINAL_PHASES or not status.evidence.complete:
                continue
            if any(item.role == "driver" and item.started_time for item in status.components):
                self.judged += 1
                logs = [self._driver_log(session, member) for member in self._members()]
                if list(LINES) not in logs:
                    found.append(f"log of the driver of {session.metadata.name}: {logs}")
        return found

    def _members(self) -> list[Path]:
        return [place for place in self._root.iterdir() if place.name != "pods"]

    def _driver_log(self, session: TestSession, member: Path) -> list[str]:
        directory = EvidenceDirectory(member / "sessions")
        name = f"{session.metadata.name}-driver"
        place = directory.path(key_of(session)) / "logs" / str(session.status.attempt) / name
        if not (place / "main.log").exists():
            return []
        return log_file.without_times((place / "main.log").read_bytes()).decode().splitlines()
