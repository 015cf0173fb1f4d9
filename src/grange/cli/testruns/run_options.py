"""Options that the verbs have in common that run sessions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from grange.cli.testruns import baseline

C = TypeVar("C", bound=Callable[..., Any])


def reports(function: C) -> C:
    """Give a verb ``junit``, ``artifacts``, ``fail_on_regression`` and what belongs to it, and ``keep``."""
    for option in (
        click.option(
            "--keep",
            is_flag=True,
            help="Do not let sessions be deleted when their evidence expires.",
        ),
        click.option(
            "--fail-on-regression",
            is_flag=True,
            help="Fail where a figure is worse than in the earlier runs of its test, or the baseline.",
        ),
        click.option(
            "--accept-regression",
            is_flag=True,
            help="Do not fail on a figure that is worse, and compare later runs with this one.",
        ),
        baseline.OPTION,
        click.option(
            "--artifacts",
            type=click.Path(path_type=Path, file_okay=False),
            help="Directory for the logs of all containers, as they are written, and records.",
        ),
        click.option(
            "--junit",
            type=click.Path(path_type=Path),
            help="Write JUnit XML: FILE.xml, or a directory with a file for each queue.",
        ),
    ):
        function = option(function)
    return function
