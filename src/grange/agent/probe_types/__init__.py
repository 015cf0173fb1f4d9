"""The types of probes: one module each, with ``asks`` and ``ask``, and one line of ``PROBE_TYPES``.

A new type also needs its field in ``api.kinds.pod.Probe``, in ``api.pod_fields.PROBE_ACTIONS`` and in the
schema ``api/schema/kubernetes.json``: the API server prunes fields that it does not know.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from grange.agent.container_runtime import PodRuntime
from grange.agent.probe_answer import Answer, ProbeTarget
from grange.agent.probe_types import exec_command, grpc, http_get, tcp_socket
from grange.api.kinds.pod import Probe


class ProbeType(NamedTuple):
    """One way to ask a container.

    Attributes:
        asks: whether a probe is of this type.
        ask: asks once; what it raises becomes a failed answer. Its last argument is the probe's
            timeout in seconds.
        ends_itself: it observes the timeout itself; otherwise it is cancelled then.
    """

    asks: Callable[[Probe], bool]
    ask: Callable[[Probe, ProbeTarget, PodRuntime, float], Awaitable[Answer]]
    ends_itself: bool = False


PROBE_TYPES: dict[str, ProbeType] = {
    "exec": ProbeType(exec_command.asks, exec_command.ask, ends_itself=True),
    "httpGet": ProbeType(http_get.asks, http_get.ask),
    "tcpSocket": ProbeType(tcp_socket.asks, tcp_socket.ask),
    "grpc": ProbeType(grpc.asks, grpc.ask),
}
"""By the name of the field of a probe; the first that ``asks`` is used."""


def type_of(probe: Probe) -> ProbeType | None:
    """The type of a probe; None for one that has no action of a known type."""
    return next((found for found in PROBE_TYPES.values() if found.asks(probe)), None)
