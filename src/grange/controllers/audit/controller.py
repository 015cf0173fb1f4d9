"""Deletes audit records that are too old or too many."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from grange.api import timestamps
from grange.api.kinds import AUDITRECORD
from grange.api.status import ApiError, Expired, NotFound
from grange.api.timestamps import TimestampError
from grange.reconcile.deps import Deps

_PAGE = 500
_AT_ONCE, _PAUSE_S = 100, 20.0  # records removed between two pauses

NAME = "audit"

_Held = tuple[str, int, str]
"""Time, version and name of a record; records of one decision have the same time and are ordered by version."""


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """Which records are kept.

    Attributes:
        keep: this many of the newest records of every controller are kept.
        max_age_s: records older than this are deleted, in seconds.
        sweep_s: seconds between two passes.
    """

    keep: int = 200
    max_age_s: float = 90 * 86_400.0
    sweep_s: float = 3600.0


class AuditController:
    """Deletes surplus audit records; ``run`` it once per API server.

    Args:
        deps: client, informers, clock, randomness, log, metrics.
        config: settings.
    """

    def __init__(self, deps: Deps, config: AuditConfig | None = None) -> None:
        self._config = config or AuditConfig()
        self._client = deps.client
        self._clock = deps.clock
        self._rng = deps.rng.fork(NAME)
        self._log = deps.log.bind(controller=NAME)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._clock.sleep(self._rng.uniform(0.9, 1.1) * self._config.sweep_s)
            try:
                removed = await self.trim()
            except ApiError as error:
                self._log.warning("audit not trimmed", error=error)
            else:
                self._log.info("audit trimmed", removed=removed)

    async def trim(self) -> int:
        """Delete records that are too old or, by controller, too many.

        Slowly: a deletion guard holds all deletions if there are many at once.

        Returns:
            How many were removed.

        Raises:
            ApiError: the server does not answer; try again later.
        """
        removed = 0
        for namespace, name in await self._surplus():
            with suppress(NotFound):
                await self._client.delete(AUDITRECORD, name, namespace)
                removed += 1
                if not removed % _AT_ONCE:
                    await self._clock.sleep(_PAUSE_S)
        return removed

    async def _surplus(self) -> list[tuple[str, str]]:
        """Namespace and name of the records to remove; not all, when the list breaks off."""
        keep = self._config.keep
        oldest = self._clock.now() - timedelta(seconds=self._config.max_age_s)
        found: list[tuple[str, str]] = []
        cont, group = "", ("", "")
        held: list[_Held] = []  # of one controller
        while True:
            try:
                page = await self._client.list(AUDITRECORD, limit=_PAGE, cont=cont)
            except Expired:
                return found  # the next pass continues
            for item in page.items:
                # Names begin with a digest of the uid, so a controller's records are adjacent.
                owner = (item.metadata.namespace, item.spec.controller_uid)
                if owner != group:
                    found += [(group[0], name) for name in _cut(held, keep, oldest)]
                    group, held = owner, []
                version = item.metadata.resource_version
                written = int(version) if version.isdecimal() else 0
                held.append((item.spec.time, written, item.metadata.name))
            cont = page.next
            if not cont:
                return found + [(group[0], name) for name in _cut(held, keep, oldest)]


def _cut(held: Iterable[_Held], keep: int, oldest: datetime) -> list[str]:
    """Names of a controller's records that are too many or too old."""
    newest_first = sorted(held, reverse=True)
    return [
        name
        for at, (time, _, name) in enumerate(newest_first)
        if at >= keep or _before(time, oldest)
    ]


def _before(time: str, instant: datetime) -> bool:
    try:
        return timestamps.parse(time) < instant
    except TimestampError:
        return False  # malformed (edited by a user): the count decides
