"""Answers to reports that clients of any API server request by an annotation of a NodePool."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec

from grange.api import timestamps
from grange.api.kinds import NODEPOOL
from grange.api.kinds.nodepool import NodePool
from grange.api.meta import Document, preconditions
from grange.api.pool_report_requests import AUDIT, PLAN, REPORT_PREFIX
from grange.api.status import ApiError, Invalid, NotFound, TooLarge
from grange.base.backoff import Exponential
from grange.base.tasks import Nursery
from grange.machines.controller.controller_context import NodeControllerContext
from grange.machines.controller.pool_reports import PoolReports

_KEPT = timedelta(minutes=1)
_READ = timedelta(
    seconds=5
)  # clients look some times a second: until then no other report replaces one
_RETRY_S = 1.0
_RETRY = Exponential(initial_s=_RETRY_S, cap_s=30.0)  # as long as clients wait
_MOST_AT_ONCE = 16  # each audit lists all instances of a provider
_MOST_ENTRIES = 2_000  # of a report in a status: objects of Kubernetes have 1.5 MB at most
_MOST_KEPT = 4  # of a pool, for the same reason
_SHOWN = 64  # characters of a request: an annotation may have 256 KiB


class _Stamp(msgspec.Struct):
    time: str = ""


class ReportRequests:
    """Writes requested reports into the status of pools, and removes them after a minute.

    Args:
        context: tools.
        reports: makes them.
    """

    def __init__(self, context: NodeControllerContext, reports: PoolReports) -> None:
        self._client, self._listers = context.client, context.listers
        self._clock, self._log = context.clock, context.log
        self._reports = reports
        self._answering: set[tuple[str, str]] = set()
        self._keeping = asyncio.Lock()  # reports are counted and written by one at a time
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """A pool may have a request."""
        self._changed.set()

    async def run(self) -> None:
        """Answer until cancelled."""
        async with Nursery("reports") as nursery:
            while True:
                self._changed.clear()
                due_s = [self._begin(pool, nursery) for pool in self._listers.pools()]
                due_s.append(await self._remove_old())
                try:
                    async with self._clock.timeout(min(filter(None, due_s), default=None)):
                        await self._changed.wait()
                except TimeoutError:
                    pass  # a report is old enough to go, or to be replaced

    def _begin(self, pool: NodePool, nursery: Nursery) -> float | None:
        """Answer requests for which the pool has room; seconds until it has more, None where all have it."""
        name, now = pool.metadata.name, self._clock.now()
        under_way = {key for key, _ in _requests(pool) if (name, key) in self._answering}
        times = (
            _time_of(pool.status.reports[key], now - _KEPT)
            for key in pool.status.reports.keys() - under_way
        )
        ages = sorted(age for time in times if timedelta() <= (age := now - time) < _READ)
        room = _MOST_KEPT - len(ages) - len(under_way)
        for request_id, what in _requests(pool):
            if request_id in under_way or len(self._answering) >= _MOST_AT_ONCE:
                continue
            if room <= 0:
                return (_READ - ages[-1]).total_seconds() if ages else None
            room -= 1
            self._answering.add((name, request_id))
            nursery.start(self._answer(name, request_id, what))
        return None

    async def _answer(self, pool: str, request_id: str, what: str) -> None:
        failures = 0
        try:
            while self._is_requested(pool, request_id):
                try:
                    await self._answer_once(pool, request_id, what)
                    return
                except NotFound:
                    return  # the pool went meanwhile, and its requests with it
                except ApiError as error:
                    failures += 1
                    facts = {"pool": pool, "what": what[:_SHOWN], "attempt": failures}
                    self._log.warning("report not written", **facts, error=error)
                await self._clock.sleep(_RETRY.delay(failures))
        finally:
            self._answering.discard((pool, request_id))
            self._changed.set()

    def _is_requested(self, pool: str, request_id: str) -> bool:
        found = self._listers.pool(pool)
        return found is not None and f"{REPORT_PREFIX}{request_id}" in found.metadata.annotations

    async def _answer_once(self, pool: str, request_id: str, what: str) -> None:
        report = shortened(await self._report(pool, what))
        try:
            await self._keep(pool, request_id, report)
        except (TooLarge, Invalid) as error:  # it would be refused each time
            self._log.warning("report refused", pool=pool, what=what[:_SHOWN], reason=error.reason)
            refusal = f"the server refused the report: {error.reason}"
            with suppress(TooLarge, Invalid):  # the pool has no room for any answer
                await self._keep(pool, request_id, self._refusal(refusal))
        done = {f"{REPORT_PREFIX}{request_id}": None}
        await self._write(pool, {"metadata": {"annotations": done}})

    async def _report(self, pool: str, what: str) -> Document:
        if what == PLAN:
            return self._reports.plan(pool)
        if what == AUDIT:
            return await self._reports.audit(pool)
        return self._refusal(f"there is no report {what[:_SHOWN]!r}; request {PLAN} or {AUDIT}")

    def _refusal(self, text: str) -> Document:
        stamp = timestamps.rfc3339(self._clock.now())
        return {"time": stamp, "refusal": text, "decisions": [], "differences": []}

    async def _keep(self, pool: str, request_id: str, report: Document) -> None:
        """Write a report into the status, in place of the oldest one where a pool has enough."""
        async with self._keeping:
            found = self._listers.pool(pool)
            kept = {} if found is None else {**found.status.reports}
            kept.pop(request_id, None)
            now = self._clock.now()
            by_age = sorted(kept, key=lambda key: _time_of(kept[key], now - _KEPT), reverse=True)
            removed = dict.fromkeys(by_age[_MOST_KEPT - 1 :])
            reports: Document = {request_id: json.dumps(report), **removed}
            await self._write(pool, {"status": {"reports": reports}}, "status")

    async def _write(self, pool: str, patch: Document, subresource: str = "") -> None:
        written = await self._client.patch(NODEPOOL, pool, patch=patch, subresource=subresource)
        self._listers.wrote_pool(written)

    async def _remove_old(self) -> float | None:
        """Remove reports that are a minute old; seconds until the next one is old, None without one."""
        now, left = self._clock.now(), []
        for pool in self._listers.pools():
            ages = {
                key: now - _time_of(text, now - _KEPT) for key, text in pool.status.reports.items()
            }
            old = [key for key, age in ages.items() if age >= _KEPT]
            left += [(_KEPT - age).total_seconds() for age in ages.values() if age < _KEPT]
            if not old:
                continue
            patch: Document = {
                "metadata": preconditions(pool.metadata),
                "status": {"reports": dict.fromkeys(old)},
            }
            try:
                await self._write(pool.metadata.name, patch, "status")
            except ApiError:
                left.append(_RETRY_S)  # it has changed, or went: another look decides
        return min(left, default=None)


def _requests(pool: NodePool) -> Iterator[tuple[str, str]]:
    """Ids of open requests, each with what is requested."""
    for key, what in sorted(pool.metadata.annotations.items()):
        if key.startswith(REPORT_PREFIX):
            yield key.removeprefix(REPORT_PREFIX), what


def shortened(report: Document) -> Document:
    """A report that fits into a status: decisions or differences beyond a bound are only counted."""
    for field in ("decisions", "differences"):
        entries = report.get(field, [])
        if (omitted := len(entries) - _MOST_ENTRIES) > 0:
            return {**report, field: entries[:_MOST_ENTRIES], "omitted": omitted}
    return report


def _time_of(text: str, default: datetime) -> datetime:
    """When a report was made; the default where it is none (edited by a user)."""
    try:
        return timestamps.parse_or(msgspec.json.decode(text, type=_Stamp).time, default)
    except msgspec.MsgspecError:
        return default
