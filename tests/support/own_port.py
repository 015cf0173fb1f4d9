"""Ports for programs of tests: tests of one file may run in several processes at once."""

import os

_FIRST, _EACH, _PROCESSES = 20_000, 10, 1_000  # below what Linux gives to clients


def own_port(number: int) -> int:
    """One of the ten ports of this process, which no other process of a test run uses."""
    return _FIRST + os.getpid() % _PROCESSES * _EACH + number
