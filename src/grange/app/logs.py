"""The options of commands that serve: what they say while they run, and how it is written."""

from collections.abc import Callable
from typing import TypeVar

import click

from grange.base import log

C = TypeVar("C", bound=Callable[..., object])

_level = click.option(
    "--log-level",
    type=click.Choice(log.LEVELS),
    default="warning",
    show_default=True,
    help="What it says while it runs.",
)
_json = click.option("--log-json", is_flag=True, help="Log JSON lines.")


def log_options(command: C) -> C:
    """Give a command ``log_level`` and ``log_json``, for ``log.configure``."""
    return _level(_json(command))
