"""A file with the figures of an earlier run, which runs are compared with (``--baseline``)."""

from collections.abc import Mapping
from pathlib import Path

import click
import msgspec

from grange.api.kinds.testsession import SessionMetricResult
from grange.api.meta import View
from grange.base.errors import GrangeError
from grange.evidence.session_record import FORMAT


class BaselineError(GrangeError):
    """The file cannot be used; the message names it and the cause."""


class Baseline:
    """The figures of a file.

    Args:
        path: of the file.
        figures: values by test and metric.
    """

    def __init__(self, path: Path, figures: Mapping[str, Mapping[str, list[float]]]) -> None:
        self._path, self._figures = path, figures

    def of(self, test: str) -> Mapping[str, list[float]]:
        """The figures of a test, by metric; empty where the file has none of it."""
        return self._figures.get(test, {})

    def absence(self, test: str) -> str:
        """What to print about a test that the file has no figures of; empty where it has."""
        if test in self._figures:
            return ""
        there = ", ".join(sorted(self._figures))
        return (
            f"--baseline {self._path} has no figures of test {test}, only of {there}; "
            f"{test} is compared with its earlier runs"
        )


class _Status(View, frozen=True):
    metrics: tuple[SessionMetricResult, ...] = ()


class _Entry(View, frozen=True):
    test: str
    status: _Status = msgspec.field(default_factory=_Status)


class _File(View, frozen=True):
    """A record (session.json, ``grange test report -o json``) or ``grange test run -o json``."""

    format: int = FORMAT
    test_name: str = ""
    metrics: tuple[SessionMetricResult, ...] = ()
    sessions: tuple[_Entry, ...] = ()


def read(path: Path) -> Baseline:
    """The figures of a kept record, or of the document that ``grange test run -o json`` prints.

    Raises:
        BaselineError: it cannot be read, is neither, or has no figures.
    """
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise BaselineError(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BaselineError(
            f"{path}: is neither a record nor the output of a run: {error}"
        ) from error
    if file.format > FORMAT:
        raise BaselineError(
            f"{path}: has format {file.format}, this version reads up to {FORMAT}; "
            "use a later version"
        )
    figures: dict[str, dict[str, list[float]]] = {}
    records = [(file.test_name, file.metrics)]
    for test, metrics in [*records, *((item.test, item.status.metrics) for item in file.sessions)]:
        for metric in metrics:
            figures.setdefault(test, {}).setdefault(metric.name, []).append(metric.value)
    if not figures:
        raise BaselineError(
            f"{path}: has no figures; give session.json of a run with spec.evidence.metrics, or the "
            "output of grange test run -o json"
        )
    return Baseline(path, figures)


OPTION = click.option(
    "--baseline",
    "baseline_path",
    type=click.Path(path_type=Path),
    help=(
        "Compare figures with those of one run: its session.json, or its output of "
        "grange test run -o json."
    ),
)


def given(path: Path | None) -> Baseline | None:
    """The baseline of the option; what is wrong with its file is wrong usage.

    Raises:
        click.BadParameter: it cannot be used.
    """
    try:
        return None if path is None else read(path)
    except BaselineError as error:
        raise click.BadParameter(str(error), param_hint="--baseline") from error
