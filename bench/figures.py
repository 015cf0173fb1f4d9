"""What is measured, in which unit, and what it should reach.

A scenario is a module of this package whose ``measure()`` (plain or async) returns
``{figure: value}``. Each run is a process of its own, so that nothing is warm but the disk cache.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One line of docs/benchmarks.md.

    Attributes:
        key: the name that the scenario returns.
        title: what it is.
        unit: its unit.
        goal: what it should reach; None is for information only.
        at_most: the goal is an upper bound.
        reference: the same on kube-apiserver, etcd and kube-scheduler, where it was measured.
    """

    key: str
    title: str
    unit: str
    goal: float | None = None
    at_most: bool = True
    reference: str = ""

    def met(self, value: float) -> bool | None:
        """Whether the value reaches the goal; None without a goal."""
        if self.goal is None:
            return None
        return value <= self.goal if self.at_most else value >= self.goal


SCENARIOS: dict[str, tuple[Figure, ...]] = {
    "startup": (
        Figure("help_s", "`grange --help`, best of three in a run", "s", 0.15),
        Figure("readyz_s", "`grange up` to a served `/readyz`", "s", 0.8, reference="2.2 to 2.5 s"),
        Figure("ready_s", "apply to three Ready replicas", "s", 2.0),
        Figure("idle_rss_mb", "idle resident memory", "MB", 80.0, reference="603 + 120 MB"),
        Figure("idle_cpu_percent", "idle CPU, of one core", "%", 1.0),
    ),
    "cluster": (
        Figure(
            "cluster_ready_s",
            "`grange.testing.cluster()` ready, modules already imported",
            "s",
            0.3,
        ),
    ),
    "apiserver": (
        Figure(
            "creates_per_s",
            "pod creates over HTTPS, 32 connections, two watchers",
            "/s",
            3000,
            at_most=False,
            reference="1,205 /s",
        ),
        Figure("watch_p99_ms", "watch latency p99 at that load", "ms", 50.0),
    ),
    "scheduler": (
        Figure(
            "bound_per_s",
            "3,000 waiting pods bound end to end, 5,000 nodes",
            "/s",
            2000,
            at_most=False,
            reference="336 /s",
        ),
        Figure("engine_basic_per_s", "decisions, one pod shape, 5,000 nodes", "/s"),
        Figure("engine_ten_shapes_per_s", "decisions, ten pod shapes, 5,000 nodes", "/s"),
        Figure(
            "engine_spread_per_s",
            "decisions, topology spread over 3 zones, DoNotSchedule, maxSkew 5, 5,000 nodes",
            "/s",
            50_000,
            at_most=False,
            reference="168 /s end to end",
        ),
        Figure(
            "engine_apart_per_s",
            "decisions, required anti-affinity by hostname, 5,000 nodes",
            "/s",
            50_000,
            at_most=False,
            reference="129 /s end to end",
        ),
        Figure(
            "engine_near_per_s",
            "decisions, required affinity by zone, 5,000 nodes",
            "/s",
            50_000,
            at_most=False,
            reference="95 /s end to end",
        ),
        Figure(
            "engine_full_pass_per_s",
            "decisions that look at all rows: preferred spread over 5,000 hosts",
            "/s",
            5_000,
            at_most=False,
        ),
    ),
    "store": (
        Figure("puts_1_per_s", "puts, one writer", "/s"),
        Figure("puts_32_per_s", "puts, 32 writers", "/s"),
        Figure("puts_256_per_s", "puts, 256 writers", "/s"),
        Figure("bytes_per_entry", "memory per stored pod of 1.4 KB", "B", 4096),
        Figure("load_100k_s", "opening 100,000 objects", "s"),
    ),
    "informer": (
        Figure("decode_us", "decoding a watch event of 1.7 KB into a pod", "µs"),
        Figure("apply_us", "what an informer adds: store, index, handler", "µs", 15.0),
        Figure("view_bytes", "memory per pod in an informer", "B"),
        Figure("collect_ms", "full garbage collection with 20,000 of them", "ms"),
    ),
    "api": (
        Figure("check_us", "schema check of a 1.4 KB pod", "µs"),
        Figure("create_path_us", "decode, defaults, checks and encoding of it", "µs"),
    ),
}
