"""Series of figures: order, limits, damaged files, and export."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.unit.evidence.session_documents import session

from grange.evidence import metric_series, session_record
from grange.evidence.metric_series import MetricPoint, MetricSeries, SeriesError

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def point(day: int, value: float, uid: str = "", verdict: str = "Passed") -> MetricPoint:
    time = f"2026-11-{day:02}T10:00:00.000000Z"
    return MetricPoint("ci", "bench", "p99", uid or f"u-{day}", time, value, verdict=verdict)


def test_last_figures_come_in_order_of_time(tmp_path: Path) -> None:
    series = MetricSeries(tmp_path / "series.db")
    series.append([point(3, 3.0), point(1, 1.0)])
    series.append([point(2, 2.0), point(4, 4.0, verdict="Failed")])
    series.append([])
    assert [item.value for item in series.last("ci", "bench", "p99", 3)] == [2.0, 3.0, 4.0]
    passed = series.last("ci", "bench", "p99", 3, verdict="Passed")
    assert [item.value for item in passed] == [1.0, 2.0, 3.0]
    assert series.last("ci", "other", "p99", 3) == []
    assert series.metrics("ci", "bench") == ["p99"]


def test_figure_of_a_session_is_kept_once(tmp_path: Path) -> None:
    series = MetricSeries(tmp_path / "series.db")
    series.append([point(1, 1.0)])
    series.append([point(1, 1.5)])
    assert series.last("ci", "bench", "p99", 9) == [point(1, 1.5)]


def test_figures_of_a_record_have_its_facts(tmp_path: Path) -> None:
    record = session_record.record_of(session())
    (found,) = metric_series.points_of(record, NOW)
    assert (found.test, found.metric, found.value) == ("bench", "p99", 1.25)
    assert (found.unit, found.better, found.verdict) == ("ms", "Lower", "Passed")
    assert found.time == "2026-11-21T10:02:30.500000Z"
    assert found.attributes["image.driver"] == "driver@sha256:1"
    series = MetricSeries(tmp_path / "new" / "series.db")
    series.append([found])
    assert series.last("ci", "bench", "p99", 1) == [found]


def test_marks_of_figures_are_kept(tmp_path: Path) -> None:
    series = MetricSeries(tmp_path / "series.db")
    marks = {"grange.dev/regressed-metrics": "p50", "grange.dev/accepted-metrics": "p99"}
    for key, level in ((None, None), *zip(marks, ("Regressed", "New"), strict=True)):
        document = session()
        if key is not None:
            document["metadata"].setdefault("annotations", {})[key] = marks[key]
        record = session_record.record_of(document)
        series.mark(record)  # nothing is there, or not yet marked
        series.append(metric_series.points_of(record, NOW))
        series.mark(record)
        (found,) = series.last("ci", "bench", "p99", 9)
        assert found.attributes.get("level") == level
        assert found.attributes["image.driver"] == "driver@sha256:1"


def test_open_record_counts_as_of_now() -> None:
    document = session()
    del document["status"]["completionTime"]
    (found,) = metric_series.points_of(session_record.record_of(document), NOW)
    assert found.time == "2026-11-21T12:00:00.000000Z"


def test_old_figures_are_deleted(tmp_path: Path) -> None:
    series = MetricSeries(tmp_path / "series.db")
    assert series.prune(NOW) == 0
    series.append([point(day, 1.0) for day in range(18, 24)])
    assert series.prune(NOW) == 4
    assert [item.uid for item in series.last("ci", "bench", "p99", 9)] == ["u-22", "u-23"]


def test_absent_file_has_no_figures(tmp_path: Path) -> None:
    series = MetricSeries(tmp_path / "series.db")
    assert series.last("ci", "bench", "p99", 9) == []
    assert series.metrics("ci", "bench") == []
    assert not (tmp_path / "series.db").exists()


def test_damaged_file_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "series.db"
    path.write_bytes(b"no database" * 100)
    with pytest.raises(SeriesError, match="file is not a database; check the disk"):
        MetricSeries(path).last("ci", "bench", "p99", 9)


def test_file_of_a_later_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "series.db"
    with monkeypatch.context() as later:
        later.setattr(metric_series, "VERSION", 2)
        MetricSeries(path).append([point(1, 1.0)])
    with pytest.raises(SeriesError, match="it has version 2, this version of Grange reads 1"):
        MetricSeries(path).append([point(1, 1.0)])


def test_names_are_no_sql(tmp_path: Path) -> None:
    series = MetricSeries(tmp_path / "series.db")
    series.append([point(1, 1.0)])
    assert series.last("' OR 1=1 --", "bench", "p99", 9) == []


def test_export_without_the_library_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SeriesError, match=r"pyarrow is missing; install grange\[parquet\]"):
        MetricSeries(tmp_path / "series.db").export_parquet(tmp_path / "out.parquet")


def read(target: Path) -> pa.Table:
    """What is in a file; from memory, since the library closes files later, in another thread."""
    return parquet.ParquetFile(pa.BufferReader(target.read_bytes())).read(use_threads=False)


def test_export_has_every_figure_with_its_type(tmp_path: Path) -> None:
    series, target = MetricSeries(tmp_path / "series.db"), tmp_path / "out.parquet"
    (found,) = metric_series.points_of(session_record.record_of(session()), NOW)
    series.append([point(2, 2.5), point(1, 1.0, "u-0"), found])
    assert series.export_parquet(target) == 3
    table = read(target)
    rows = table.to_pylist()
    assert [row["value"] for row in rows] == [1.0, 2.5, found.value]
    assert rows[0]["time"] == datetime(2026, 11, 1, 10, tzinfo=UTC)
    assert (rows[2]["test"], rows[2]["metric"], rows[2]["unit"]) == ("bench", "p99", "ms")
    assert dict(rows[2]["attributes"]) == found.attributes
    assert {str(table.schema.field(name).type) for name in ("uid", "verdict")} == {"string"}


def test_export_of_no_figures_is_an_empty_table(tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    assert MetricSeries(tmp_path / "series.db").export_parquet(target) == 0
    table = read(target)
    assert table.num_rows == 0
    assert "value" in table.column_names


def test_export_to_no_directory_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    target = tmp_path / "absent" / "out.parquet"
    with pytest.raises(SeriesError, match=r"cannot write .*; name another file"):
        MetricSeries(tmp_path / "series.db").export_parquet(target)


def test_columns_have_every_figure() -> None:
    columns = metric_series.columns_of([point(1, 1.0), point(2, 2.0)])
    assert columns["value"] == [1.0, 2.0]
    assert columns["time"] == [datetime(2026, 11, day, 10, tzinfo=UTC) for day in (1, 2)]
    assert columns["uid"] == ["u-1", "u-2"]
    assert columns["attributes"] == [[], []]
    assert {len(values) for values in columns.values()} == {2}
