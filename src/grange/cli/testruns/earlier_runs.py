"""Figures of earlier runs of a test: of sessions that are there, and of those that were deleted.

Sessions are deleted when their evidence expires, and their figures stay in the series of the session
service for long. Each member of a farm has the series of the sessions it worked on, so the objects count as well.
"""

from collections.abc import Iterable
from datetime import datetime

from grange.api.kinds import TESTSESSION
from grange.api.kinds.testsession import PASSED
from grange.api.status import ApiError
from grange.cli import terminal
from grange.cli.session import ApiSession
from grange.cli.testruns.kept_evidence import KeptSeries, NoEvidence, SeriesPoint
from grange.evidence import metric_series, session_record
from grange.evidence.session_record import SessionRecord

_RUNS = 100  # of a test, whose figures are compared


class EarlierRuns:
    """Reads them for the sessions of one command.

    Args:
        opened: the connection to the cluster.
    """

    def __init__(self, opened: ApiSession) -> None:
        self._opened = opened
        self._listed: dict[str, list[SessionRecord] | ApiError] = {}
        self._printed: set[str] = set()

    async def figures(self, record: SessionRecord) -> dict[str, list[float]]:
        """The figures of runs of the same test that passed before it, by metric, the latest last.

        Runs that failed for a regression are left out; so is what was before a new level.

        Raises:
            ApiError: neither sessions nor series can be read.
        """
        series = await self._series(record)
        listed = await self._records(record.namespace or self._opened.namespace)
        if isinstance(listed, ApiError):
            if series is None:
                raise listed
            listed = []
        return merged(listed, series or {}, record)

    async def _records(self, namespace: str) -> list[SessionRecord] | ApiError:
        """The sessions of a namespace, which are listed once."""
        if namespace not in self._listed:
            try:
                found = await self._opened.listed(TESTSESSION, namespace)
                self._listed[namespace] = [session_record.record_of(item) for item in found]
            except ApiError as error:
                self._listed[namespace] = error
        return self._listed[namespace]

    async def _series(self, record: SessionRecord) -> dict[str, list[SeriesPoint]] | None:
        """What the service has that collected the evidence; None if it cannot be read."""
        if not record.evidence_url or not record.metrics:
            return None
        try:
            series = KeptSeries(self._opened, record.evidence_url)
            try:
                return {
                    metric.name: await series.last(
                        record.namespace, record.test_name, metric.name, _RUNS
                    )
                    for metric in record.metrics
                }
            finally:
                await series.close()
        except (NoEvidence, ApiError) as error:
            self._print(f"figures of deleted sessions are not compared: {error}")
            return None

    def _print(self, line: str) -> None:
        if line not in self._printed:
            self._printed.add(line)
            terminal.echo(line, err=True)


def merged(
    listed: Iterable[SessionRecord],
    series: dict[str, list[SeriesPoint]],
    record: SessionRecord,
) -> dict[str, list[float]]:
    """The figures of earlier runs of the same test that passed, each session once, by metric.

    Args:
        listed: sessions that are there.
        series: figures of sessions of this test, by metric.
        record: of the run in question.
    """
    found: dict[tuple[str, str], tuple[datetime, float, str]] = {}
    for name, points in series.items():
        for point in points:
            time = session_record.instant(point.time)
            if point.verdict == PASSED and time is not None:
                mark = point.attributes.get(metric_series.LEVEL, "")
                found[name, point.uid] = (time, point.value, mark)
    for item in listed:
        time = session_record.instant(item.completion_time)
        if item.test_name == record.test_name and item.verdict == PASSED and time is not None:
            for metric in item.metrics:
                mark = metric_series.mark_of(item, metric.name)
                found[metric.name, item.uid] = (time, metric.value, mark)
    end = session_record.instant(record.completion_time)
    figures: dict[str, list[float]] = {}
    for (name, uid), (time, value, mark) in sorted(found.items(), key=lambda item: item[1][0]):
        if uid == record.uid or (end is not None and time >= end):
            continue
        if mark == metric_series.NEW_LEVEL:
            figures[name] = [value]
        elif mark != metric_series.REGRESSED:
            figures.setdefault(name, []).append(value)
    return {name: values[-_RUNS:] for name, values in figures.items()}
