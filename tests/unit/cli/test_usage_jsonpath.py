"""A malformed JSONPath in an option is an error of usage."""

import click
import pytest

from grange.cli.printers import jsonpath


def test_malformed_jsonpath_is_a_usage_error() -> None:
    assert jsonpath.evaluate("{.kind}", {"kind": "List"}) == "List"
    with pytest.raises(click.UsageError, match="jsonpath: no closing brace"):
        jsonpath.evaluate("{.kind", {"kind": "List"})
