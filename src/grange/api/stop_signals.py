"""The signals that ``lifecycle.stopSignal`` may name."""

import signal

_RESERVED = ("SIGCLD", "SIGPOLL", "SIGSTKFLT", "SIGRTMIN", "SIGRTMAX")
_NUMBERS = {item.name: int(item) for item in signal.Signals if item.name not in _RESERVED} | {
    "SIGCLD": int(signal.SIGCHLD),
    "SIGPOLL": int(signal.SIGIO),
    "SIGRTMIN": int(signal.SIGRTMIN),
    "SIGRTMAX": int(signal.SIGRTMAX),
}
_NUMBERS |= {f"SIGRTMIN+{step}": int(signal.SIGRTMIN) + step for step in range(1, 16)}
_NUMBERS |= {f"SIGRTMAX-{step}": int(signal.SIGRTMAX) - step for step in range(1, 15)}

STOP_SIGNALS = tuple(sorted(_NUMBERS))
"""Their names."""


def number_of(name: str) -> int:
    """The number of a signal; SIGTERM for no name or an unknown one."""
    return _NUMBERS.get(name, int(signal.SIGTERM))
