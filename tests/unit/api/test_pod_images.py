"""Containers name a program, an image, or both."""

from typing import Any

import pytest
from tests.unit.api.documents import pod

from grange.api import schema
from grange.api.kinds import POD
from grange.api.validation import validate
from grange.api.validation.podspec import NO_COMMAND

C = "spec.containers[0]"


def faults(**fields: Any) -> list[tuple[str, str]]:
    document = pod(containers=[{"name": "a", **fields}])
    assert schema.check(document, POD) == []
    return [(cause.field, cause.message) for cause in validate(document, None, POD)]


@pytest.mark.parametrize("fields", [{}, {"args": ["x"]}, {"command": [""]}, {"command": []}])
def test_image_stands_for_a_command(fields: dict[str, Any]) -> None:
    assert faults(image="nginx", **fields) == []


def test_container_needs_an_image_or_a_command() -> None:
    assert faults(args=["x"]) == [(f"{C}.command", f"Required value: {NO_COMMAND}")]


def test_image_has_no_space_around_it() -> None:
    message = 'Invalid value: " nginx": must not have leading or trailing whitespace'
    assert faults(image=" nginx") == [(f"{C}.image", message)]
