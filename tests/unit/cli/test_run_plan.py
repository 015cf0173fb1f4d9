"""Manifests, parameters and matrices become named sessions, the same in every run."""

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given, strategies

from grange.api import names
from grange.api.codec import convert, load_yaml_documents
from grange.api.kinds.testsession import TestSession, components, pod_names
from grange.api.meta import Document
from grange.cli.testruns import cell_matrix, parameters, run_plan
from grange.cli.testruns.cell_matrix import CellMatrix
from grange.cli.testruns.run_plan import PlannedSession, PlanSettings


def manifest(matrix: str = "", **spec: Any) -> Document:
    meta: Document = {"name": "qps"}
    if matrix:
        meta["annotations"] = {cell_matrix.ANNOTATION: matrix}
    driver = {"command": ["run", "--size=${{ size }}"], "env": [{"name": "A", "value": "1"}]}
    return {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "TestSession",
        "metadata": meta,
        "spec": {"driver": driver, "clients": [{"command": ["c"], "count": "${{ n }}"}], **spec},
    }


def planned(document: Document, **settings: Any) -> list[PlannedSession]:
    return run_plan.plan([document], PlanSettings(run="abcde", **settings))


# --- parameters -------------------------------------------------------------------------------


def test_parameters_are_texts_or_whole_values() -> None:
    (found,) = planned(manifest(), values={"size": 64, "n": 3})
    assert found.document["spec"]["driver"]["command"] == ["run", "--size=64"]
    assert found.document["spec"]["clients"][0]["count"] == 3
    assert found.document["metadata"]["annotations"][run_plan.PARAMETERS_ANNOTATION] == (
        '{"size":64,"n":3}'
    )


@pytest.mark.parametrize(
    ("key", "value", "path"),
    [
        ("spec.timeouts.runSeconds", 60, ("timeouts", "runSeconds")),
        ("spec.clients[0].count", 4, ("clients", 0, "count")),
        ("spec.driver.env[A]", "2", ("driver", "env", 0, "value")),
        ("spec.driver.env[B]", "new", ("driver", "env", 1, "value")),
        ("spec.clients[0].env[B]", "x", ("clients", 0, "env", 0, "value")),
    ],
)
def test_path_sets_a_field(key: str, value: Any, path: tuple[Any, ...]) -> None:
    before = manifest()
    made, used = parameters.applied(before, {key: value})
    found: Any = made["spec"]
    for step in path:
        found = found[step]
    assert (found, used) == (value, {key})
    assert before == manifest()


def test_words_of_programs_are_texts_whatever_their_values() -> None:
    document = manifest(clients=[])
    document["spec"]["driver"] = {
        "command": ["run", "${{ size }}"],
        "env": [{"name": "SIZE", "value": "${{ size }}"}],
    }
    (found,) = planned(document, values={"size": 64})
    assert found.document["spec"]["driver"] == {
        "command": ["run", "64"],
        "env": [{"name": "SIZE", "value": "64"}],
    }


def test_variable_is_text_whatever_its_value() -> None:
    made, _ = parameters.applied(manifest(), {"spec.driver.env[SIZE]": 64})
    assert made["spec"]["driver"]["env"][1] == {"name": "SIZE", "value": "64"}


@pytest.mark.parametrize(
    "key", ["spec.clients[7].count", "spec.driver.command.x", "spec.[", "spec.a["]
)
def test_path_that_leads_nowhere_is_refused(key: str) -> None:
    with pytest.raises(click.UsageError):
        parameters.applied(manifest(), {key: 1})


def test_list_that_is_not_there_is_named() -> None:
    with pytest.raises(click.UsageError) as caught:
        parameters.applied(manifest(), {"spec.clents[0].count": 3})
    assert caught.value.message.startswith(
        "spec.clents[0].count: the manifest has no list spec.clents; the lists there: "
    )


def test_values_are_json_or_text() -> None:
    texts = ["3", "1.5", "true", '"3"', "[1]", "abc", "08", ""]
    assert [parameters.parse_value(text) for text in texts] == [
        *(3, 1.5, True, "3", [1], "abc", "08", ""),
    ]
    with pytest.raises(click.UsageError, match="KEY=VALUE"):
        parameters.parse_pair("=3")


def test_parameters_of_shells_and_kubernetes_are_left_alone() -> None:
    document = manifest(scenario="${HOME} $(A) ${{ n }}")
    (found,) = planned(document, values={"size": 1, "n": "x"})
    assert found.document["spec"]["scenario"] == "${HOME} $(A) x"


def test_parameter_without_a_value_or_a_place_is_refused() -> None:
    with pytest.raises(click.UsageError, match=r"size.*has no value; give --set size=VALUE"):
        planned(manifest(), values={"n": 1})
    with pytest.raises(click.UsageError, match="--set other: no manifest has"):
        planned(manifest(), values={"n": 1, "size": 1, "other": 1})
    with pytest.raises(click.UsageError, match="matrix: other"):
        planned(manifest(), values={"n": 1, "size": 1}, axes=("other=1,2",))


# --- matrices ---------------------------------------------------------------------------------


def test_matrix_has_every_combination_in_order() -> None:
    found = planned(manifest("axes: {size: [64, 4096], n: [1, 2]}"))
    assert [item.name for item in found] == [
        *("qps-64-1-abcde", "qps-64-2-abcde", "qps-4096-1-abcde", "qps-4096-2-abcde"),
    ]
    assert [item.test for item in found] == ["qps-64-1", "qps-64-2", "qps-4096-1", "qps-4096-2"]
    assert cell_matrix.ANNOTATION not in found[0].document["metadata"]["annotations"]
    assert found[0].document["spec"]["testName"] == "qps-64-1"


def test_options_replace_the_axes_of_the_annotation() -> None:
    found = planned(manifest("axes: {size: [64, 4096], n: [1, 2]}"), axes=("n=7",))
    assert [item.parameters for item in found] == [{"size": 64, "n": 7}, {"size": 4096, "n": 7}]


def test_repetitions_are_runs_of_one_test() -> None:
    found = planned(manifest("axes: {size: [1], n: [1]}\nrepeat: 2"))
    assert [item.document["spec"]["testName"] for item in found] == ["qps-1-1", "qps-1-1"]
    assert [item.name for item in found] == ["qps-1-1-r1-abcde", "qps-1-1-r2-abcde"]
    assert [item.test for item in found] == ["qps-1-1-r1", "qps-1-1-r2"]


def test_include_and_exclude_are_those_of_github_actions() -> None:
    """The example of GitHub's documentation on expanding matrices."""
    matrix = CellMatrix(
        axes={"fruit": ["apple", "pear"], "animal": ["cat", "dog"]},
        include=[
            {"color": "green"},
            {"color": "pink", "animal": "cat"},
            {"fruit": "apple", "shape": "circle"},
            {"fruit": "banana"},
            {"fruit": "banana", "animal": "cat"},
        ],
    )
    assert cell_matrix.cells(matrix) == [
        {"fruit": "apple", "animal": "cat", "color": "pink", "shape": "circle"},
        {"fruit": "apple", "animal": "dog", "color": "green", "shape": "circle"},
        {"fruit": "pear", "animal": "cat", "color": "pink"},
        {"fruit": "pear", "animal": "dog", "color": "green"},
        {"fruit": "banana"},
        {"fruit": "banana", "animal": "cat"},
    ]
    excluded = CellMatrix(axes={"a": [1, 2], "b": [1, 2]}, exclude=[{"a": 1}, {"a": 2, "b": 2}])
    assert cell_matrix.cells(excluded) == [{"a": 2, "b": 1}]


def test_values_that_compare_equal_are_different_cells() -> None:
    assert len(cell_matrix.cells(CellMatrix(axes={"a": [1, True, 1.0, 1]}))) == 3


@pytest.mark.parametrize("page", ["how-to/test-sessions.md", "reference/cli.md"])
def test_matrix_of_the_documentation_can_be_read(page: str) -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / page).read_text()
    (example,) = (
        part for part in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "axes:" in part
    )
    (document,) = load_yaml_documents(example)
    matrix = cell_matrix.parse(document["metadata"]["annotations"][cell_matrix.ANNOTATION])
    assert len(cell_matrix.cells(matrix)) == 3
    assert (matrix.fail_fast, matrix.repeat, matrix.cap) == (True, 3, 64)


def test_matrix_beyond_its_cap_is_refused() -> None:
    axes = {"a": list(range(16)), "b": list(range(17))}
    with pytest.raises(click.UsageError, match="272 cells and 256 are allowed"):
        cell_matrix.cells(CellMatrix(axes=axes))
    assert len(cell_matrix.cells(CellMatrix(axes=axes, cap=272))) == 272
    assert len(cell_matrix.cells(CellMatrix(axes=axes, exclude=[{"b": 16}]))) == 256
    with pytest.raises(click.UsageError, match="512 cells"):
        cell_matrix.cells(CellMatrix(axes=axes, exclude=[{"b": 16}], repeat=2))
    huge = {key: list(range(1000)) for key in "abcdef"}
    with pytest.raises(click.UsageError, match="cells and 256 are allowed"):
        cell_matrix.cells(CellMatrix(axes=huge))
    with pytest.raises(click.UsageError, match="everything is excluded"):
        cell_matrix.cells(CellMatrix(axes={"a": [1]}, exclude=[{"a": 1}]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("axis: {}", "no such field"),
        ("axes: {a: 1}", "list of values"),
        ("axes: {a: []}", "list of values"),
        ("repeat: 0", "greater than or equal to 1"),
        ("cap: true", "greater than or equal to 1"),
        ("failFast: 1", "true or false"),
        ("include: {a: 1}", "list of objects"),
        ("[1]", "mapping"),
        ("a: [", "annotations"),
    ],
)
def test_malformed_matrix_names_the_field(text: str, message: str) -> None:
    with pytest.raises(click.UsageError, match=message) as caught:
        cell_matrix.parse(text)
    assert cell_matrix.ANNOTATION in caught.value.message


# --- names ------------------------------------------------------------------------------------


def test_cells_that_read_alike_get_different_names() -> None:
    labels = run_plan.cell_labels([{"a": "x.y"}, {"a": "x-y"}, {"a": "z"}])
    assert len(set(labels)) == 3
    assert labels[2] == "z"
    assert labels == run_plan.cell_labels([{"a": "x.y"}, {"a": "x-y"}, {"a": "z"}])


TEXTS = strategies.text(strategies.characters(codec="latin-1", exclude_categories=["Cc"]))
VALUES = strategies.one_of(TEXTS, strategies.integers(-9, 10**30), strategies.booleans())


@given(
    base=strategies.from_regex(r"[a-z]([-a-z0-9]{0,60}[a-z0-9])?", fullmatch=True),
    values=strategies.lists(VALUES, min_size=1, max_size=4, unique_by=str),
    count=strategies.integers(1, 200),
)
def test_every_pod_of_every_cell_has_a_valid_name(base: str, values: list[Any], count: int) -> None:
    document: Document = {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "TestSession",
        "metadata": {
            "name": base,
            "annotations": {cell_matrix.ANNOTATION: json.dumps({"axes": {"v": values}})},
        },
        "spec": {
            "driver": {"command": ["x", "${{ v }}"]},
            "clients": [{"name": "load-generator", "command": ["x"], "count": count}],
        },
    }
    found = planned(document)
    assert len({item.name for item in found}) == len(found) == len(values)
    for item in found:
        session = convert(item.document, TestSession)
        assert names.check_dns_1035_label(item.name) is None
        assert names.check_label_value(session.spec.test_name) is None
        for _, name, component in components(session.spec):
            for pod in pod_names(item.name, name, component.count):
                assert names.check_dns_label(pod) is None, pod


def test_two_manifests_of_one_name_are_refused() -> None:
    document = manifest()
    settings = PlanSettings(run="abcde", values={"size": 1, "n": 1})
    with pytest.raises(click.UsageError, match="two manifests have this name"):
        run_plan.plan([document, document], settings)
    with pytest.raises(click.UsageError, match="no TestSession"):
        run_plan.plan([{"apiVersion": "v1", "kind": "ConfigMap"}], settings)


def test_sessions_are_deleted_with_their_evidence_unless_kept() -> None:
    values = {"size": 1, "n": 1}
    (usual,) = planned(manifest(), values=values)
    assert usual.document["spec"]["ttlSecondsAfterFinished"] == 7 * 24 * 3600
    (short,) = planned(manifest(evidence={"retentionSeconds": 0}), values=values)
    assert short.document["spec"]["ttlSecondsAfterFinished"] == 3600
    (own,) = planned(manifest(ttlSecondsAfterFinished=5), values=values)
    assert own.document["spec"]["ttlSecondsAfterFinished"] == 5
    (kept,) = planned(manifest(), values=values, keep=True)
    assert "ttlSecondsAfterFinished" not in kept.document["spec"]
