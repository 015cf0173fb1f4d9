"""Verbs on several objects: what is refused for one is shown, and the others are done."""

from pathlib import Path

import pytest
from tests.unit.cli.canned_cluster import CannedCluster, document, listed

from grange.api.kinds import (
    CONFIGMAP,
    GANGJOB,
    MACHINE,
    MACHINELEASE,
    NODE,
    REPLICATIONCONTROLLER,
    SECRET,
    TESTSESSION,
)
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.base.log import Logger
from grange.base.rng import Stream

FORBIDDEN = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "not yours"}
REFUSED = "Error from server (Forbidden): not yours\n"
MISSING = "Error from server (NotFound): not found\n"


def at(kind: AnyKind, name: str, *subresource: str) -> str:
    return kind.path("default" if kind.namespaced else "", name, *subresource)


def named(name: str, **fields: object) -> Document:
    meta = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"}
    return {"metadata": meta, **fields}


def test_delete_goes_on_after_refusals(tmp_path: Path, rng: Stream, log: Logger) -> None:
    first, last = at(CONFIGMAP, "a"), at(CONFIGMAP, "d")
    there = CannedCluster(
        {
            f"DELETE {first}": named("a"),
            f"DELETE {at(CONFIGMAP, 'b')}": FORBIDDEN,
            f"DELETE {last}": named("d"),
        }
    )
    words = ("delete", "cm", "a", "b", "c", "d", "--no-wait")
    result = there.run(tmp_path, rng, log, *words)
    assert result.exit_code == 1, result.output
    assert len(there.writes) == 4
    assert result.stdout == 'configmap "a" deleted\nconfigmap "d" deleted\n'
    assert result.stderr == REFUSED + MISSING

    result = there.run(tmp_path, rng, log, "delete", "cm", "c", "--ignore-not-found")
    assert (result.exit_code, result.output) == (0, "")


def test_delete_goes_on_after_a_refused_list(tmp_path: Path, rng: Stream, log: Logger) -> None:
    there = CannedCluster(
        {
            SECRET.path("default"): FORBIDDEN,
            CONFIGMAP.path("default"): listed(named("a")),
            f"DELETE {at(CONFIGMAP, 'a')}": named("a"),
        }
    )
    result = there.run(tmp_path, rng, log, "delete", "secrets,cm", "--all", "--no-wait")
    assert result.exit_code == 1, result.output
    assert result.stdout == 'configmap "a" deleted\n'
    assert result.stderr == REFUSED


def test_delete_of_an_unknown_kind_deletes_nothing(
    tmp_path: Path, rng: Stream, log: Logger
) -> None:
    core: Document = {"groupVersion": "v1", "resources": []}
    there = CannedCluster({"/apis": {"groups": []}, "/api/v1": core})
    result = there.run(tmp_path, rng, log, "delete", "cm/a", "foo/b")
    assert (result.exit_code, there.writes) == (1, [])
    assert 'no resource type "foo"' in result.stderr


def test_scale_goes_on_after_refusals(tmp_path: Path, rng: Stream, log: Logger) -> None:
    there = CannedCluster(
        {
            f"PATCH {at(REPLICATIONCONTROLLER, 'a', 'scale')}": FORBIDDEN,
            f"PATCH {at(REPLICATIONCONTROLLER, 'c', 'scale')}": named("c"),
        }
    )
    result = there.run(tmp_path, rng, log, "scale", "grc", "a", "b", "c", "--replicas", "2")
    assert result.exit_code == 1, result.output
    assert result.stdout == "replicationcontroller.grange.dev/c scaled\n"
    assert result.stderr == REFUSED + MISSING


def test_get_shows_what_it_may(tmp_path: Path, rng: Stream, log: Logger) -> None:
    columns = [{"name": "Name", "type": "string", "format": "name"}]

    def row(name: str) -> Document:
        return {"kind": "Table", "columnDefinitions": columns, "rows": [{"cells": [name]}]}

    tables = CannedCluster(
        {
            at(CONFIGMAP, "a"): row("a"),
            at(CONFIGMAP, "b"): FORBIDDEN,
            at(CONFIGMAP, "d"): row("d"),
            SECRET.path("default"): FORBIDDEN,
            CONFIGMAP.path("default"): row("a"),
        }
    )
    result = tables.run(tmp_path, rng, log, "get", "cm", "a", "b", "c", "d")
    assert result.exit_code == 1, result.output
    assert result.stdout == "NAME\na\nd\n", "one table, as kubectl prints it"
    assert result.stderr == REFUSED + MISSING
    result = tables.run(tmp_path, rng, log, "get", "secrets,cm")
    assert (result.exit_code, result.stdout) == (1, "NAME\nconfigmap/a\n")

    objects = CannedCluster({at(CONFIGMAP, "a"): named("a")})
    result = objects.run(tmp_path, rng, log, "get", "cm", "missing", "a", "-o", "json")
    assert result.exit_code == 1, result.output
    assert [item["metadata"]["name"] for item in document(result)["items"]] == ["a"]
    result = objects.run(tmp_path, rng, log, "get", "cm", "missing", "-o", "json")
    assert (result.exit_code, result.stdout) == (1, "")


@pytest.mark.parametrize(
    ("words", "shown"),
    [(("describe",), "Name:         b"), (("why",), "configmap/b")],
    ids=["describe", "why"],
)
def test_texts_are_shown_of_what_may_be_read(
    words: tuple[str, ...], shown: str, tmp_path: Path, rng: Stream, log: Logger
) -> None:
    there = CannedCluster(
        {
            at(CONFIGMAP, "a"): FORBIDDEN,
            at(CONFIGMAP, "b"): {"kind": "ConfigMap", **named("b")},
            "/api/v1/namespaces/default/events": listed(),
        }
    )
    result = there.run(tmp_path, rng, log, *words, "cm", "a", "b", "c")
    assert result.exit_code == 1, result.output
    assert shown in result.stdout
    assert result.stderr == REFUSED + MISSING


@pytest.mark.parametrize(
    ("words", "kind", "write", "done"),
    [
        (("job", "suspend", "gj/a", "gj/b"), GANGJOB, "PATCH", "gj/b suspended"),
        (("job", "resume", "gj/a", "gj/b"), GANGJOB, "PATCH", "gj/b resumed"),
        (("lease", "release", "a", "b"), MACHINELEASE, "DELETE", "ml/b released"),
        (("test", "cancel", "a", "b"), TESTSESSION, "PATCH", "ts/b cancelled"),
        (("lease", "clean", "a", "b"), NODE, "", "node/b is not dirty; left as it is"),
    ],
    ids=["suspend", "resume", "release", "cancel", "clean"],
)
def test_groups_go_on_after_refusals(
    words: tuple[str, ...],
    kind: AnyKind,
    write: str,
    done: str,
    tmp_path: Path,
    rng: Stream,
    log: Logger,
) -> None:
    found = {**named("b", spec={"machines": []}), "kind": kind.kind}
    answers = {at(kind, "a"): FORBIDDEN, at(kind, "b"): found, f"{write} {at(kind, 'b')}": found}
    result = CannedCluster(answers).run(tmp_path, rng, log, *words)
    assert result.exit_code == 1, result.output
    assert result.stdout == f"{done}\n"
    assert result.stderr == REFUSED


def test_machines_are_cordoned_after_one_without_a_node(
    tmp_path: Path, rng: Stream, log: Logger
) -> None:
    machine = {"kind": "Machine", **named("b", spec={}, status={"phase": "Available"})}
    there = CannedCluster(
        {
            at(MACHINE, "a"): machine,
            at(MACHINE, "b"): machine,
            at(NODE, "b"): named("b"),
            f"PATCH {at(NODE, 'b')}": named("b"),
        }
    )
    result = there.run(tmp_path, rng, log, "machines", "cordon", "a", "c", "b")
    assert result.exit_code == 1, result.output
    assert "machine.grange.dev/b cordoned\n" in result.stdout
    assert "not found" in result.stderr
