"""Figures of tests over time, in one SQLite file. Everything here blocks.

It is a separate file: the store keeps objects by revision and is compacted, figures are kept by test
and stay for long.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

import msgspec

from grange.api import timestamps
from grange.api.meta import View
from grange.base.errors import GrangeError
from grange.evidence import session_record
from grange.evidence.session_record import SessionRecord

LEVEL = "level"
"""Attribute of figures that are no ordinary part of their series."""

REGRESSED, NEW_LEVEL = "Regressed", "New"
"""Of a run that failed for it, which is no baseline; of one with which later ones are compared."""

VERSION = 1
_BUSY_S = 5.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS points (
    namespace TEXT NOT NULL, test TEXT NOT NULL, metric TEXT NOT NULL, uid TEXT NOT NULL,
    time TEXT NOT NULL, session TEXT NOT NULL, verdict TEXT NOT NULL, value REAL NOT NULL,
    unit TEXT NOT NULL, better TEXT NOT NULL, attributes TEXT NOT NULL,
    PRIMARY KEY (namespace, test, metric, uid)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_time ON points (namespace, test, metric, time);
"""
_COLUMNS = "namespace, test, metric, uid, time, session, verdict, value, unit, better, attributes"
_TEXTS = ("namespace", "test", "metric", "uid", "session", "verdict", "unit", "better")


class SeriesError(GrangeError):
    """The series cannot be read or written; the message names the file and the cause."""


class MetricPoint(View, frozen=True):
    """One figure of one session.

    Attributes:
        time: of the session's end, RFC 3339 in UTC with microseconds: such times compare as text.
        session: its name; ``uid`` distinguishes runs of one name.
        attributes: further facts, as the versions of what was tested.
    """

    namespace: str
    test: str
    metric: str
    uid: str
    time: str
    value: float
    session: str = ""
    verdict: str = ""
    unit: str = ""
    better: str = ""
    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class MetricSeries:
    """Series of figures.

    Args:
        path: of the file; it is made when it is first written to.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, points: Iterable[MetricPoint]) -> None:
        """Add figures; those of a session that are there already are replaced.

        Raises:
            SeriesError: the file cannot be written.
        """
        rows = [
            (
                *(point.namespace, point.test, point.metric, point.uid, point.time, point.session),
                *(point.verdict, point.value, point.unit, point.better),
                msgspec.json.encode(point.attributes).decode(),
            )
            for point in points
        ]
        if rows:
            with self._opened() as file:
                file.executemany(
                    f"INSERT OR REPLACE INTO points ({_COLUMNS}) "  # noqa: S608  constants
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    rows,
                )

    def last(
        self, namespace: str, test: str, metric: str, count: int, *, verdict: str = ""
    ) -> list[MetricPoint]:
        """The last figures of a series, in the order of time.

        Args:
            namespace: of the sessions.
            test: by which its runs are known.
            metric: its name.
            count: at most so many.
            verdict: only those of sessions that ended so; empty for all.

        Raises:
            SeriesError: the file cannot be read.
        """
        if not self._path.exists():
            return []
        with self._opened() as file:
            rows = file.execute(
                f"SELECT {_COLUMNS} FROM points WHERE namespace = ? AND test = ? "  # noqa: S608  constants
                "AND metric = ? AND (? = '' OR verdict = ?) ORDER BY time DESC, uid DESC LIMIT ?",
                (namespace, test, metric, verdict, verdict, count),
            ).fetchall()
        return [_point(row) for row in reversed(rows)]

    def mark(self, record: SessionRecord) -> None:
        """Note which figures of a session are a regression, and which are a new level.

        Raises:
            SeriesError: the file cannot be written.
        """
        if not self._path.exists():
            return
        marks = {metric.name: mark_of(record, metric.name) for metric in record.metrics}
        with self._opened() as file:
            file.executemany(
                "UPDATE points SET attributes = json_set(attributes, ?, ?) "
                "WHERE namespace = ? AND test = ? AND metric = ? AND uid = ?",
                [
                    (f"$.{LEVEL}", mark, record.namespace, record.test_name, metric, record.uid)
                    for metric, mark in marks.items()
                    if mark
                ],
            )

    def metrics(self, namespace: str, test: str) -> list[str]:
        """The metrics that a test has a series of.

        Raises:
            SeriesError: the file cannot be read.
        """
        if not self._path.exists():
            return []
        with self._opened() as file:
            rows = file.execute(
                "SELECT DISTINCT metric FROM points WHERE namespace = ? AND test = ? "
                "ORDER BY metric",
                (namespace, test),
            ).fetchall()
        return [str(row[0]) for row in rows]

    def prune(self, before: datetime) -> int:
        """Delete the figures of sessions that ended earlier; how many they were.

        Raises:
            SeriesError: the file cannot be written.
        """
        if not self._path.exists():
            return 0
        with self._opened() as file:
            deleted = file.execute(
                "DELETE FROM points WHERE time < ?", (timestamps.rfc3339_micro(before),)
            )
            return deleted.rowcount

    def export_parquet(self, target: Path) -> int:
        """Write all figures as Parquet; how many they were.

        Raises:
            SeriesError: the extra ``parquet`` is not installed, or a file cannot be used.
        """
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError as error:
            raise SeriesError(
                f"cannot write {target}: pyarrow is missing; install grange[parquet]"
            ) from error
        points = self._all()
        schema = pa.schema([pa.field(name, pa.string()) for name in _TEXTS])
        schema = schema.append(pa.field("time", pa.timestamp("us", "UTC")))
        schema = schema.append(pa.field("value", pa.float64()))
        schema = schema.append(pa.field("attributes", pa.map_(pa.string(), pa.string())))
        try:
            parquet.write_table(pa.table(columns_of(points), schema=schema), target)
        except OSError as error:
            raise SeriesError(f"cannot write {target}: {error}; name another file") from error
        return len(points)

    def _all(self) -> list[MetricPoint]:
        if not self._path.exists():
            return []
        with self._opened() as file:
            rows = file.execute(
                f"SELECT {_COLUMNS} FROM points ORDER BY time, uid"  # noqa: S608  constants
            ).fetchall()
        return [_point(row) for row in rows]

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with closing(sqlite3.connect(self._path, timeout=_BUSY_S)) as file:
                version = file.execute("PRAGMA user_version").fetchone()[0]
                if version not in (0, VERSION):
                    raise SeriesError(
                        f"cannot use {self._path}: it has version {version}, this version of "
                        f"Grange reads {VERSION}; use a later one"
                    )
                if version == 0:
                    file.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT")
                with file:
                    yield file
        except (sqlite3.Error, OSError) as error:
            raise SeriesError(
                f"cannot use {self._path}: {error}; check the disk, or move the file away to "
                "begin new series"
            ) from error


def mark_of(record: SessionRecord, metric: str) -> str:
    """What a figure is to its series: ``NEW_LEVEL``, ``REGRESSED``, or empty for an ordinary one.

    A run that failed for one figure is no measure for the others.
    """
    if metric in record.accepted_metrics:
        return NEW_LEVEL
    return REGRESSED if record.regressed_metrics else ""


def points_of(record: SessionRecord, now: datetime) -> list[MetricPoint]:
    """The figures of a session; the time is that of its end, or now."""
    end = session_record.instant(record.completion_time) or now
    return [
        MetricPoint(
            record.namespace,
            record.test_name,
            metric.name,
            record.uid,
            timestamps.rfc3339_micro(end),
            metric.value,
            session=record.name,
            verdict=record.verdict,
            unit=metric.unit,
            better=metric.better,
            attributes={
                f"image.{component.name}": component.image
                for component in record.components
                if component.image
            },
        )
        for metric in record.metrics
    ]


def columns_of(points: Sequence[MetricPoint]) -> dict[str, list[object]]:
    """The figures by column: text, the time as an instant, the value, and pairs of attributes."""
    columns: dict[str, list[object]] = {
        name: [getattr(point, name) for point in points] for name in _TEXTS
    }
    columns["time"] = [timestamps.parse(point.time) for point in points]
    columns["value"] = [point.value for point in points]
    columns["attributes"] = [[*point.attributes.items()] for point in points]
    return columns


def _point(row: tuple[object, ...]) -> MetricPoint:
    fields = dict(zip(_COLUMNS.split(", "), row, strict=True))
    fields["attributes"] = msgspec.json.decode(str(fields["attributes"]))
    return msgspec.convert(fields, MetricPoint)
