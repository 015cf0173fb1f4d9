"""Durations on a command line."""

import math

import click

_YEAR_S = 365 * 24 * 3600.0


def parse_duration(text: str) -> float:
    """Seconds of ``90``, ``30s``, ``2m``, ``1h``; a negative one means a week, as in kubectl.

    Raises:
        click.UsageError: not a duration.
    """
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        seconds = float(number) * units[unit]
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise click.UsageError(f"{text!r} is no duration; write 30s, 2m or 1h")
    return seconds if seconds >= 0 else 7 * 24 * 3600.0


def parse_term(option: str, text: str) -> float:
    """Seconds of something that begins now and has to end: more than none, a year at most.

    Args:
        option: what it was given with, for the message.
        text: as ``parse_duration`` reads it, but never negative.

    Raises:
        click.UsageError: not a duration, or not such a one.
    """
    seconds = parse_duration(text)
    if text.strip().startswith("-") or not 0 < seconds <= _YEAR_S:
        raise click.UsageError(f"{option} {text}: give more than 0s, and 8760h at most")
    return seconds
