"""Records of the audit in the order in which things happened."""

from grange.api.meta import Document
from grange.cli.verbs import history


def record(name: str, time: str, version: str) -> Document:
    return {"metadata": {"name": name, "resourceVersion": version}, "spec": {"time": time}}


def test_the_latest_comes_last_and_records_of_one_time_as_they_were_written() -> None:
    now, before = "2026-01-01T00:00:01.000000Z", "2026-01-01T00:00:00.999999Z"
    found = [record("c", now, "10"), record("b", now, "9"), record("a", before, "11")]
    assert [item["metadata"]["name"] for item in history.in_order(found)] == ["a", "b", "c"]
