"""Tables and documents as people and scripts see them."""

import click
import msgspec
import pytest
import yaml

from grange.api.kinds import POD
from grange.cli.printers import documents, table

TABLE = {
    "columnDefinitions": [
        {"name": "Name", "priority": 0},
        {"name": "Ready", "priority": 0},
        {"name": "Node", "priority": 1},
    ],
    "rows": [
        {
            "cells": ["web-1", True, "n1"],
            "object": {"metadata": {"namespace": "default", "labels": {"b": "2", "a": "1"}}},
        },
        {"cells": ["a-longer-name", False, None], "object": {"metadata": {"namespace": "x"}}},
    ],
}


def test_columns_align_and_wide_ones_stay_hidden() -> None:
    heading, rows = table.cells(TABLE)
    assert table.render([heading, *rows]) == [
        "NAME            READY",
        "web-1           true",
        "a-longer-name   false",
    ]


def test_wide_namespaces_and_labels_add_their_columns() -> None:
    heading, rows = table.cells(TABLE, wide=True, namespaces=True, labels=True)
    assert heading == ["NAMESPACE", "NAME", "READY", "NODE", "LABELS"]
    assert rows[0] == ["default", "web-1", "true", "n1", "a=1,b=2"]
    assert rows[1] == ["x", "a-longer-name", "false", "<none>", "<none>"]


def test_columns_of_labels_show_their_values() -> None:
    keys = ("a", "example.com/zone")
    heading, rows = table.cells(TABLE, labels=True, label_columns=keys)
    assert heading == ["NAME", "READY", "A", "ZONE", "LABELS"]
    assert rows == [
        ["web-1", "true", "1", "", "a=1,b=2"],
        ["a-longer-name", "false", "", "", "<none>"],
    ]


PODS = [(POD, {"metadata": {"name": name}, "spec": {"nodeName": "n"}}) for name in ("a", "b")]


def test_one_named_object_is_printed_bare_and_several_as_a_list() -> None:
    assert msgspec.json.decode(documents.render("json", PODS[:1], single=True)) == PODS[0][1]
    many = yaml.safe_load(documents.render("yaml", PODS, single=False))
    assert many["kind"] == "List"
    assert many["items"] == [item for _, item in PODS]


def test_names_jsonpath_and_custom_columns() -> None:
    assert documents.render("name", PODS, single=False) == "pod/a\npod/b\n"
    path = "jsonpath={.items[*].metadata.name}"
    assert documents.render(path, PODS, single=False) == "a b"
    columns = documents.render("custom-columns=N:.metadata.name,X:.spec.none", PODS, single=False)
    assert columns == "N   X\na   <none>\nb   <none>\n"


def test_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(click.UsageError, match="json, yaml, name"):
        documents.render("xml", PODS, single=False)
