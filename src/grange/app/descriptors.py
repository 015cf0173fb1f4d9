"""Descriptors of this process: how many there are, and how many of them connections may take."""

import resource

from grange.apiserver.connections import ConnectionLimits

_WANTED = 65_536
_TOTAL = ConnectionLimits()


def raise_limit() -> int:
    """Raise the soft limit of open descriptors to the hard one, up to 65,536; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _WANTED if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def connection_limits(descriptors: int) -> ConnectionLimits:
    """How many connections there may be: half of the descriptors stay for the store and for agents.

    Args:
        descriptors: how many the process may have.
    """
    return ConnectionLimits(
        total=min(_TOTAL.total, descriptors // 2),
        unauthenticated=min(_TOTAL.unauthenticated, descriptors // 4),
        unauthenticated_per_peer=min(_TOTAL.unauthenticated_per_peer, descriptors // 8),
    )
