"""What a program gets that listens on all addresses, and whether the kernel allows it.

It is every address of the machine, its pod's, or every address of a network namespace of its pod.
With ``REPLICAS`` it depends on the pod: replicas of one template get their pod's, since the second one
would find its port in use; all others get every address of the machine, as some frameworks of jobs announce
one of those to each other.
"""

import os
import socket
from collections.abc import Callable

from grange.agent.container_runtime import PodSetup, RuntimeFailedError
from grange.agent.runtime_choices import ADDRESSES, AUTO, NETNS, REPLICAS, SHARED
from grange.agent.runtimes.process import shim_connection

_LIMIT_S = 10.0


def choose(
    network: str, probe: Callable[[], socket.socket], refuse_netns: Callable[[], str]
) -> str:
    """What programs get: ``REPLICAS``, ``ADDRESSES``, ``NETNS`` or ``SHARED``.

    Args:
        network: one of ``NETWORKS``.
        probe: asks the launcher to try ``bind_filter``; the answer is the connection to its shim.
        refuse_netns: why pods cannot have network namespaces; empty where they can.

    Raises:
        RuntimeFailedError: it is asked for and not possible.
    """
    if network == SHARED:
        return SHARED
    if network == NETNS:
        if why := refuse_netns():
            raise RuntimeFailedError(
                f"--network netns: {why}; it needs root and iproute2, or use --network auto"
            )
        return NETNS
    why = _refusal(probe)
    if not why:
        return REPLICAS if network == AUTO else network
    if network == AUTO:
        return SHARED
    raise RuntimeFailedError(
        f"--network {network}: the kernel does not allow it: {why}; it needs Linux 5.9 with seccomp "
        "user notification, and no other such filter around this program, or use --network shared"
    )


def binds_its_address(network: str, setup: PodSetup) -> bool:
    """Whether programs of a pod that listen on all addresses get its address.

    Args:
        network: what ``choose`` returned.
        setup: of the pod.
    """
    applies = network == ADDRESSES or (network == REPLICAS and setup.is_replica)
    return applies and not setup.host_network


def _refusal(probe: Callable[[], socket.socket]) -> str:
    with probe() as connection:
        answer = shim_connection.answer(connection, _LIMIT_S)
    if isinstance(answer, str):
        return answer
    if "errno" not in answer:
        return "the probe ended without an answer"
    number = shim_connection.number_of(answer, "errno")
    return os.strerror(number) if number else ""
