"""Which nodes are alive: heartbeats judged by our own monotonic clock.

A heartbeat is a *change* of the node's Lease, stamped with the moment at which we saw it. What
time the node believes it is does not matter, so skewed clocks cannot kill a node. Four things
keep us from killing nodes because of our own trouble:

- before a node is marked, the server is asked for its Lease: our watch may have hung;
- a node gets a full grace period from the moment we first see it, so a restart marks no node;
- when the monitor itself comes late, time has passed that we did not watch: every node starts a
  fresh grace period;
- when too large a share of the nodes is unhealthy at once (``disrupted``), nothing is evicted.

A node that never had a Lease has no agent that we know of; its Ready condition is believed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from grange.api.kinds.node import Node


class NodeHealth(Enum):
    """How a node is."""

    HEALTHY = "healthy"
    NOT_READY = "is not ready"
    SILENT = "has stopped sending heartbeats"
    NEW = "has sent no heartbeat yet"


@dataclass(slots=True)
class _Beat:
    marker: str
    seen: float


class Monitor:
    """Remembers heartbeats.

    Args:
        grace_s: silence for longer means SILENT.
        clock_gap_s: a tick later than this after the one before resets every grace period.
        disruption_share: the unhealthy share at which the cluster counts as disrupted.
    """

    def __init__(self, *, grace_s: float, clock_gap_s: float, disruption_share: float) -> None:
        self._grace_s = grace_s
        self._clock_gap_s = clock_gap_s
        self._share = disruption_share
        self._beats: dict[str, _Beat] = {}
        self._ticked: float | None = None
        self.disrupted = False

    def beat(self, node: str, marker: str, now: float) -> None:
        """The node's Lease is (still) like this; only a change is a heartbeat."""
        known = self._beats.get(node)
        if known is None:
            self._beats[node] = _Beat(marker, now)
        elif known.marker != marker:
            known.marker, known.seen = marker, now

    def forget(self, node: str) -> None:
        """The node is gone."""
        self._beats.pop(node, None)

    def tick(self, nodes: Iterable[Node], now: float) -> bool:
        """Judge the cluster as a whole; True if the monitor came late and forgave everybody."""
        late = self._ticked is not None and now - self._ticked > self._clock_gap_s
        self._ticked = now
        if late:
            for beat in self._beats.values():
                beat.seen = now
        count = unhealthy = 0
        for node in nodes:
            count += 1
            unhealthy += self.health(node, now) in {NodeHealth.SILENT, NodeHealth.NOT_READY}
        self.disrupted = count > 0 and unhealthy >= max(1.0, self._share * count)
        return late

    def health(self, node: Node, now: float) -> NodeHealth:
        """How a node is."""
        beat = self._beats.get(node.metadata.name)
        if beat is not None and now - beat.seen > self._grace_s:
            return NodeHealth.SILENT
        for item in node.status.conditions:
            if item.type == "Ready":
                if item.status == "True":
                    return NodeHealth.HEALTHY
                # Our own verdict stands until the node itself reports.
                return NodeHealth.SILENT if item.status == "Unknown" else NodeHealth.NOT_READY
        return NodeHealth.NEW
