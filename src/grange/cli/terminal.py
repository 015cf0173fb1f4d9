"""Where text reaches the terminal: every verb prints with ``echo`` or ``write``.

What a server sends holds text of pods and of other users. Control characters in it are shown
escaped, so that they cannot move the cursor, hide lines or set the title of a terminal.
"""

import contextlib
import sys
from collections.abc import Iterable, Iterator

import click
import msgspec

from grange.base import controls
from grange.base.errors import GrangeError


class OutputFailed(GrangeError):
    """Standard output cannot be written: the disk of its file is full, for example."""


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text for users; control characters other than line breaks and tabs are escaped.

    Args:
        text: what to print.
        err: on standard error.
        nl: end the line.

    Raises:
        OutputFailed: standard output cannot be written.
    """
    with contextlib.nullcontext() if err else _output():
        click.echo(controls.escape(text), err=err, nl=nl)


def write(text: str) -> None:
    """Print a document on standard output: exactly as it is, except to a terminal.

    What ``json`` and ``yaml`` print holds no control characters; a value that a JSONPath selects may.

    Raises:
        OutputFailed: standard output cannot be written.
    """
    shown = controls.escape(text) if sys.stdout.isatty() else text
    with _output():
        click.echo(shown.encode(), nl=False)  # of text, click removes sequences that it knows


def show(error: click.ClickException) -> None:
    """Print why a verb failed on standard error."""
    if isinstance(error, click.UsageError) or type(error).show is not click.ClickException.show:
        error.show()
    else:
        echo(f"Error: {error.format_message()}", err=True)


def cell(text: str) -> str:
    """Text for one cell or one line: line breaks and tabs are escaped, too."""
    return controls.escape(text, lines=False)


def json_text(value: object) -> str:
    """A value as indented JSON without any control character but line breaks."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=4).decode()
    return controls.escape_json(text)


def write_bytes(lines: Iterable[bytes]) -> None:
    """Write lines of logs to standard output as programs wrote them, and flush.

    Raises:
        OutputFailed: standard output cannot be written.
    """
    with _output():
        for line in lines:
            sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


@contextlib.contextmanager
def _output() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # its reader has left
        raise
    except OSError as error:
        raise OutputFailed(f"cannot write to standard output: {error.strerror}") from error
