"""What differs between two templates, as short paths."""

import pytest

from grange.api.meta import Document
from grange.cli.changed_paths import changed_paths


def template(**container: object) -> Document:
    return {"spec": {"containers": [{"name": "web", "image": "web:1", **container}]}}


def env(**values: str) -> list[Document]:
    return [{"name": name, "value": value} for name, value in values.items()]


@pytest.mark.parametrize(
    ("before", "after", "paths"),
    [
        (template(), template(), []),
        (template(), template(image="web:2"), ["containers[web].image"]),
        (
            template(env=env(LEVEL="info", MODE="a")),
            template(env=env(MODE="a", LEVEL="debug", NEW="1")),
            ["containers[web].env[LEVEL].value", "containers[web].env[NEW]"],
        ),
        (template(env=env(LEVEL="info")), template(), ["containers[web].env"]),
        (template(args=["-v", "1"]), template(args=["-v", "2"]), ["containers[web].args[1]"]),
        (template(args=["-v"]), template(args=["-v", "2"]), ["containers[web].args[1]"]),
        (
            {"metadata": {"labels": {"app": "web"}}},
            {"metadata": {"labels": {"app": "web"}, "annotations": {"grange.dev/x": "1"}}},
            ["metadata.annotations"],
        ),
        (
            {"metadata": {"annotations": {"grange.dev/x": "1"}}},
            {"metadata": {"annotations": {"grange.dev/x": "2"}}},
            ["metadata.annotations[grange.dev/x]"],
        ),
        ({"spec": {"a": 1}}, {"spec": {"a": [1]}}, ["a"]),
    ],
)
def test_paths_name_what_differs(before: Document, after: Document, paths: list[str]) -> None:
    assert changed_paths(before, after) == paths
    assert len(changed_paths(after, before)) == len(paths)
