"""Messages of exec and attach: what one side writes the other reads, and garbage harms nothing."""

import json

import pytest
from hypothesis import given, settings, strategies as st

from grange.api import remote_command
from grange.api.remote_command import ERROR, RESIZE, TerminalSize
from grange.api.status import ApiError, BadRequest


def test_exit_codes_cross() -> None:
    for message, code in ((remote_command.succeeded(), 0), (remote_command.exited(7), 7)):
        assert message[0] == ERROR
        assert remote_command.exit_code(message[1:]) == code


def test_status_of_a_code_is_that_of_kubernetes() -> None:
    status = json.loads(remote_command.exited(3)[1:])
    assert (status["kind"], status["status"]) == ("Status", "Failure")
    assert status["reason"] == "NonZeroExitCode"
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]


def test_other_failures_are_errors() -> None:
    with pytest.raises(BadRequest, match="no such container"):
        remote_command.exit_code(remote_command.failed(BadRequest("no such container"))[1:])


@given(st.binary(max_size=60) | st.dictionaries(st.text(), st.integers()).map(json.dumps))
@settings(max_examples=200, deadline=None)
def test_garbage_is_an_error_of_the_api(data: bytes | str) -> None:
    raw = data.encode() if isinstance(data, str) else data
    remote_command.read_size(raw)
    try:
        remote_command.exit_code(raw)
    except ApiError:
        pass
    else:
        assert json.loads(raw)["status"] == "Success"


@given(st.integers(-10, 70000), st.integers(-10, 70000))
def test_sizes_cross_where_terminals_can_have_them(columns: int, rows: int) -> None:
    message = remote_command.resize(TerminalSize(columns, rows))
    assert message[0] == RESIZE
    possible = 0 < columns < 1 << 16 and 0 < rows < 1 << 16
    assert remote_command.read_size(message[1:]) == ((columns, rows) if possible else None)
