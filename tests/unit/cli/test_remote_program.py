"""A program elsewhere with the streams of this process: what goes where, and how it ends."""

import os
import pty
import termios
from collections.abc import AsyncGenerator, Iterator

import click
import pytest

from grange.api import remote_command
from grange.api.meta import Document
from grange.api.remote_command import CLOSE, STDERR, STDIN, STDOUT, V4, V5, message
from grange.api.status import ApiError, BadRequest, NotFound
from grange.base.message_socket import MessageSocket, socket_pair
from grange.base.tasks import Nursery
from grange.cli.pod_lookup import best_pod, container_of
from grange.cli.remote_program import StreamUse, run_program
from grange.cli.standard_streams import StandardInput, raw_terminal


class Streams:
    """Pipes in the place of standard input and output."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()

    def fileno(self) -> int:
        return self.reading


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Streams]:
    found = Streams()
    monkeypatch.setattr("sys.stdin", found)
    yield found
    os.close(found.reading)


@pytest.fixture
async def pair() -> AsyncGenerator[tuple[MessageSocket, MessageSocket], None]:
    ours, theirs = socket_pair()
    yield ours, theirs
    await ours.close()
    await theirs.close()


OUTPUT_ONLY = StreamUse(stdin=False, tty=False)
Pair = tuple[MessageSocket, MessageSocket]


async def test_output_and_exit_code_are_passed_on(
    pair: Pair, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    ours, theirs = pair
    for sent in (
        message(STDOUT, b"out\xff"),
        message(STDERR, b"err"),
        b"",
        message(77, b"unknown"),
        remote_command.exited(9),
    ):
        await theirs.send(sent)
    assert await run_program(ours, V5, OUTPUT_ONLY) == 9
    assert capfdbinary.readouterr() == (b"out\xff", b"err")


async def test_failures_are_errors(pair: Pair) -> None:
    ours, theirs = pair
    await theirs.send(remote_command.failed(BadRequest("it does not run")))
    with pytest.raises(ExceptionGroup) as caught:
        await run_program(ours, V5, OUTPUT_ONLY)
    assert caught.group_contains(BadRequest, match="it does not run")


async def test_broken_connection_is_an_error(pair: Pair) -> None:
    ours, theirs = pair
    await theirs.close()
    with pytest.raises(ExceptionGroup) as caught:
        await run_program(ours, V5, OUTPUT_ONLY)
    assert caught.group_contains(ApiError, match="broke off")


@pytest.mark.parametrize("protocol", [V4, V5])
async def test_input_is_passed_on_to_its_end(pair: Pair, stdin: Streams, protocol: str) -> None:
    ours, theirs = pair
    os.write(stdin.writing, b"typed")
    os.close(stdin.writing)
    async with Nursery("test") as nursery:
        use = StreamUse(stdin=True, tty=False)
        running = nursery.start(run_program(ours, protocol, use), name="program")
        assert await theirs.receive() == message(STDIN, b"typed")
        if protocol == V5:
            assert await theirs.receive() == message(CLOSE, bytes((STDIN,)))
        await theirs.send(remote_command.succeeded())
    assert running.result() == 0


async def test_program_ends_before_its_input(pair: Pair, stdin: Streams) -> None:
    ours, theirs = pair
    await theirs.send(remote_command.exited(2))
    assert await run_program(ours, V5, StreamUse(stdin=True, tty=False)) == 2
    os.write(stdin.writing, b"for the next program")
    assert os.read(stdin.reading, 100) == b"for the next program"
    os.close(stdin.writing)


async def test_files_are_read_as_input() -> None:
    with open(__file__, "rb") as file:  # noqa: ASYNC230  a file of this test, opened once
        stdin = StandardInput(file.fileno())
        assert b"".join([await stdin.read(), await stdin.read()]).startswith(b'"""A program')


async def test_reader_that_left_ends_the_program(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pair
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        await theirs.send(message(STDOUT, b"lost"))
        assert await run_program(ours, V5, OUTPUT_ONLY) == 141


def test_terminal_is_restored_after_errors() -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    with pytest.raises(ZeroDivisionError), raw_terminal(theirs):
        assert not termios.tcgetattr(theirs)[3] & termios.ECHO
        _ = 1 / 0
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


def pod(*names: str, phase: str = "Running", ready: bool = True) -> Document:
    status = "True" if ready else "False"
    return {
        "metadata": {"name": names[0], "annotations": {}},
        "spec": {"containers": [{"name": name} for name in names]},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": status}]},
    }


def test_first_container_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert container_of(pod("a"), "")["name"] == "a"
    assert capsys.readouterr().err == ""
    assert container_of(pod("a", "b"), "")["name"] == "a"
    assert capsys.readouterr().err == "container a, the first of a, b; choose another one with -c\n"
    assert container_of(pod("a", "b"), "b")["name"] == "b"
    chosen = pod("a", "b")
    chosen["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] = "b"
    assert container_of(chosen, "")["name"] == "b"
    with pytest.raises(click.ClickException, match="pod a: no container c; it has a, b"):
        container_of(pod("a", "b"), "c")


def test_ready_pod_is_meant() -> None:
    pods = [pod("a", phase="Pending"), pod("b", ready=False), pod("c")]
    assert best_pod(pods, "none")["metadata"]["name"] == "c"
    assert best_pod(pods[:2], "none")["metadata"]["name"] == "b"
    with pytest.raises(NotFound, match="none; see grange get pods"):
        best_pod(pods[:1], "none")
