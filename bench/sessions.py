"""The queue of machine leases: a decision when 1,000 leases wait for 10 pools of 50 machines.

A decision is what follows the end of a lease: its machines are set free in the queue, which is asked
who is next, and the grants are entered. No two leases are alike: their durations differ.

Alone: ``python -m bench.sessions``.
"""

import json
import time
from heapq import heappop, heappush

from grange.base.rng import Stream
from grange.placement.lease_model import GrantedLease, MachineCounts, WaitingLease
from grange.placement.lease_outlook import outlooks
from grange.placement.lease_queue import LeaseQueue

WAITING, POOLS, MACHINES, NAMESPACES = 1_000, 10, 50, 8
DECISIONS = 3_000


class Cluster:
    """Pools and leases that begin and end; a new lease comes for each that ends."""

    def __init__(self, draw: Stream) -> None:
        self.queue = LeaseQueue()
        self.now = 0.0
        self._draw = draw
        self._ends: list[tuple[float, str]] = []
        self._made = 0
        for number in range(POOLS):
            self.queue.set_pool(f"p{number}", MachineCounts(MACHINES, MACHINES, MACHINES))

    def submit(self) -> None:
        """A lease of 5 machines of one pool or two."""
        pools = [f"p{self._draw.integer(0, POOLS - 1)}", f"p{self._draw.integer(0, POOLS - 1)}"]
        need = ((pools[0], 5),) if pools[0] == pools[1] else ((pools[0], 1), (pools[1], 4))
        self._made += 1
        namespace = f"n{self._made % NAMESPACES}"
        duration = self._draw.uniform(10.0, 600.0)
        request = WaitingLease(f"s{self._made}", namespace, need, 0, self.now, (), duration)
        self.queue.put(request)

    def end(self) -> str:
        """Let time pass until the next lease ends."""
        self.now, uid = heappop(self._ends)
        return uid

    def decide(self, ended: str = "") -> int:
        """Free what ended, and grant what can be granted; how many were."""
        queue = self.queue
        if ended:
            self._change(queue.granted[ended].held, 1)
            queue.remove(ended)
        granted = queue.decide(self.now).granted
        for one in granted:
            self._change(one.need, -1)
            queue.hold(GrantedLease(one.uid, one.namespace, one.need, (), self.now, one.expected_s))
            heappush(self._ends, (self.now + (one.expected_s or 0.0), one.uid))
        return len(granted)

    def busy(self) -> float:
        """Share of the machines that are granted."""
        free = sum(counts.free for counts in self.queue.pools.values())
        return 1.0 - free / (POOLS * MACHINES)

    def _change(self, machines: tuple[tuple[str, int], ...], sign: int) -> None:
        for pool, count in machines:
            was = self.queue.pools[pool]
            counts = MachineCounts(was.free + sign * count, was.usable, was.total)
            self.queue.set_pool(pool, counts)


def measure() -> dict[str, float]:
    """Milliseconds of CPU of decisions, and how busy the machines are meanwhile."""
    cluster = Cluster(Stream(1))
    for _ in range(WAITING + POOLS * MACHINES // 5):
        cluster.submit()
    cluster.decide()
    times: list[float] = []
    granted, busy_s, elapsed_s = 0, 0.0, 0.0
    for _ in range(DECISIONS):
        while len(cluster.queue.waiting) < WAITING:
            cluster.submit()
        before, busy = cluster.now, cluster.busy()
        ended = cluster.end()
        busy_s += busy * (cluster.now - before)
        elapsed_s += cluster.now - before
        started = time.process_time()
        granted += cluster.decide(ended)
        times.append((time.process_time() - started) * 1e3)
    started = time.process_time()
    shown = sum(1 for _ in outlooks(cluster.queue, cluster.now))
    outlook_ms = (time.process_time() - started) * 1e3
    times.sort()
    assert shown >= WAITING - 50
    assert granted >= DECISIONS * 0.9
    return {
        "decision_ms": sum(times) / len(times),
        "decision_p99_ms": times[int(len(times) * 0.99)],
        "outlook_ms": outlook_ms,
        "busy_percent": 100 * busy_s / elapsed_s,
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
