"""``-o json`` of the verbs that list is a List, however many objects there are."""

from pathlib import Path

import pytest
from tests.unit.cli import canned_cluster
from tests.unit.cli.canned_cluster import CannedCluster

from grange.api.kinds import GANGJOB, MACHINELEASE, NODE, POD, TESTSESSION
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.base.log import Logger
from grange.base.rng import Stream


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("job", "list"), GANGJOB),
        (("lease", "list"), MACHINELEASE),
        (("test", "list"), TESTSESSION),
        (("get", "pods"), POD),
    ],
    ids=["job", "lease", "test", "get"],
)
def test_list_is_printed_as_list(
    words: tuple[str, ...], kind: AnyKind, count: int, tmp_path: Path, rng: Stream, log: Logger
) -> None:
    items = [{"metadata": {"name": f"a{at}"}, "spec": {}} for at in range(count)]
    cluster = CannedCluster({kind.path("default"): canned_cluster.listed(*items)})
    result = cluster.run(tmp_path, rng, log, *words, "-o", "json")
    assert result.exit_code == 0, result.output
    found = canned_cluster.document(result)
    assert found["kind"] == "List"
    assert [item["kind"] for item in found["items"]] == [kind.kind] * count


@pytest.mark.parametrize(
    ("word", "kind", "message"),
    [
        ("pods", POD, "No resources found in namespace default."),
        ("nodes", NODE, "No resources found."),
    ],
)
def test_empty_list_names_the_namespace_of_its_kind(
    word: str, kind: AnyKind, message: str, tmp_path: Path, rng: Stream, log: Logger
) -> None:
    table = {"kind": "Table", "columnDefinitions": [], "rows": []}
    path = kind.path("default") if kind.namespaced else kind.path("")
    result = CannedCluster({path: table}).run(tmp_path, rng, log, "get", word)
    assert result.exit_code == 0, result.output
    assert message in result.output


def named_table(*names: str) -> Document:
    """A Table with one row for each name."""
    rows = [{"cells": [name], "object": {"metadata": {"name": name}}} for name in names]
    columns = [{"name": "Name", "type": "string", "format": "name"}]
    return {"kind": "Table", "columnDefinitions": columns, "rows": rows}


def served(group_version: str, kind: AnyKind, *categories: str) -> Document:
    """The resources of a group: one kind."""
    resource = {"name": kind.plural, "kind": kind.kind, "namespaced": True}
    return {
        "groupVersion": group_version,
        "resources": [{**resource, "categories": list(categories)}],
    }


ALL = {
    "/apis": {"groups": [{"preferredVersion": {"groupVersion": GANGJOB.api_version}}]},
    "/api/v1": served("v1", POD, "all"),
    GANGJOB.root: served(GANGJOB.api_version, GANGJOB, "all", "grange"),
    POD.path("default"): named_table("a", "b"),
    GANGJOB.path("default"): named_table("train"),
}


def test_get_all_lists_every_kind_of_the_category(tmp_path: Path, rng: Stream, log: Logger) -> None:
    result = CannedCluster(ALL).run(tmp_path, rng, log, "get", "all")
    assert result.exit_code == 0, result.output
    shown = [line.strip() for line in result.stdout.splitlines()]
    assert shown == ["NAME", "pod/a", "pod/b", "", "NAME", "gangjob.grange.dev/train"]
    result = CannedCluster(ALL).run(tmp_path, rng, log, "get", "grange", "--no-headers")
    assert result.stdout.split() == ["train"]  # one kind: as if it had been asked for


def test_names_have_their_kind_where_several_are_listed(
    tmp_path: Path, rng: Stream, log: Logger
) -> None:
    result = CannedCluster(ALL).run(tmp_path, rng, log, "get", "pods,gangjobs", "--no-headers")
    assert result.stdout.split() == ["pod/a", "pod/b", "gangjob.grange.dev/train"]
    result = CannedCluster(ALL).run(tmp_path, rng, log, "get", "pods", "--no-headers")
    assert result.stdout.split() == ["a", "b"]
