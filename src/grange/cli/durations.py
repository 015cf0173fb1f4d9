"""Durations as people write them on a command line."""

import click


def parse_duration(text: str) -> float:
    """Seconds of ``90``, ``30s``, ``2m``, ``1h``; a negative one means a week, as in kubectl.

    Raises:
        click.UsageError: not a duration.
    """
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        seconds = float(number) * units[unit]
    except ValueError as error:
        raise click.UsageError(f"{text!r} is no duration; write 30s, 2m or 1h") from error
    return seconds if seconds >= 0 else 7 * 24 * 3600.0
