"""What is measured, in which unit, and what it should reach.

A scenario is a module of this package whose ``measure()`` (plain or async) returns
``{figure: value}``. Each run is a separate process, so that nothing is warm but the disk cache.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One line of docs/reference/benchmarks.md.

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
    "pods": (
        Figure("start_ms", "a pod from its creation to Running, median", "ms", 30.0),
        Figure("start_p99_ms", "the same, p99", "ms", 200.0),
        Figure("start_cpu_ms", "processor time of that, programs included", "ms"),
        Figure("many_s", "500 pods on one agent from creation to Running", "s", 10.0),
        Figure("many_cpu_s", "processor time of that", "s"),
        Figure("pod_mb", "memory per idle pod, supervisor and server's part included", "MB", 3.0),
        Figure("idle_cpu_percent", "CPU with 500 idle pods, of one core", "%", 2.0),
        Figure("isolated_start_ms", "`--isolation auto`: a pod to Running, median", "ms", 60.0),
        Figure("isolated_start_p99_ms", "the same, p99", "ms", 200.0),
        Figure("isolated_start_cpu_ms", "processor time of that", "ms"),
        Figure("isolated_many_s", "`--isolation auto`: 500 pods to Running", "s", 10.0),
        Figure("isolated_many_cpu_s", "processor time of that", "s"),
        Figure("isolated_pod_mb", "`--isolation auto`: memory per idle pod", "MB", 3.0),
        Figure("isolated_idle_cpu_percent", "`--isolation auto`: CPU with 500 idle pods", "%", 2.0),
    ),
    "endurance": (
        Figure("pods", "pods that came and went", ""),
        Figure("kills", "SIGKILLs of supervisors and of server with agent", ""),
        Figure("left_processes", "processes left at the end", "", 0.0),
        Figure("left_networks", "network namespaces and interfaces left", "", 0.0),
        Figure("left_mounts", "mounts left", "", 0.0),
        Figure("left_groups", "control groups left", "", 0.0),
        Figure("left_directories", "directories of pods left", "", 0.0),
        Figure("left_descriptors", "descriptors that 40 pods add to the server", "", 0.0),
        Figure("grown_mb", "resident memory that 40 pods add to the server", "MB"),
        Figure("endurance_s", "how long it takes", "s"),
    ),
    "agents": (
        Figure("join_s", "`grange agent` with a token to a Ready node", "s", 3.0),
        Figure(
            "connect_ms", "connection to a pod on another machine and its first byte", "ms", 20.0
        ),
        Figure(
            "stream_gbit",
            "one connection to a pod on another machine",
            "Gbit/s",
            0.5,
            at_most=False,
        ),
    ),
    "proxy": (
        Figure(
            "added_round_trip_ms", "added to a round trip on an open connection, p50", "ms", 0.3
        ),
        Figure("added_connection_ms", "added to a connection and its first byte, p50", "ms"),
        Figure("connection_cpu_us", "processor time of the proxy for a connection", "µs"),
        Figure("proxied_gbit", "one connection through the proxy", "Gbit/s", 2.0, at_most=False),
        Figure("gigabyte_cpu_s", "processor time of the proxy for a gigabyte", "s"),
        Figure("direct_gbit", "one connection without the proxy", "Gbit/s"),
        Figure("direct_requests", "wrk, 16 connections to nginx, directly", "/s"),
        Figure("service_requests", "the same through the Service", "/s"),
        Figure("nginx_requests", "the same through another nginx as reverse proxy", "/s"),
        Figure("direct_request_ms", "p50 of a request directly", "ms"),
        Figure("service_request_ms", "p50 of a request through the Service", "ms"),
        Figure("nginx_request_ms", "p50 of a request through the reverse proxy", "ms"),
        Figure("request_cpu_us", "processor time of the proxy for a request", "µs"),
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
    "binding": (
        Figure(
            "bound_3k_per_s",
            "3,000 waiting pods, 5,000 nodes, decided, written, watched back",
            "/s",
            2_000,
            at_most=False,
            reference="336 /s",
        ),
        Figure("bound_basic_per_s", "10,000 waiting pods", "/s", 10_000, at_most=False),
        Figure(
            "bound_ten_shapes_per_s",
            "10,000 waiting pods of ten shapes",
            "/s",
            8_000,
            at_most=False,
        ),
        Figure(
            "bound_spread_per_s",
            "5,000 with topology spread over 3 zones, DoNotSchedule, maxSkew 5",
            "/s",
            6_000,
            at_most=False,
            reference="168 /s",
        ),
        Figure(
            "bound_apart_per_s",
            "3,000 with required anti-affinity by hostname",
            "/s",
            6_000,
            at_most=False,
            reference="129 /s",
        ),
        Figure(
            "bound_near_per_s",
            "5,000 with required affinity by zone",
            "/s",
            6_000,
            at_most=False,
            reference="95 /s",
        ),
        Figure(
            "bound_full_pass_per_s",
            "3,000 that look at all rows: preferred spread over 5,000 hosts",
            "/s",
            3_000,
            at_most=False,
        ),
    ),
    "scheduler": (
        Figure(
            "engine_basic_per_s",
            "decisions, one pod shape, 5,000 nodes",
            "/s",
            50_000,
            at_most=False,
            reference="336 /s end to end",
        ),
        Figure(
            "engine_ten_shapes_per_s",
            "decisions, ten pod shapes interleaved, 5,000 nodes",
            "/s",
            25_000,
            at_most=False,
        ),
        Figure(
            "engine_spread_per_s",
            "decisions, topology spread over 3 zones, DoNotSchedule, maxSkew 5, 5,000 nodes",
            "/s",
            25_000,
            at_most=False,
            reference="168 /s end to end",
        ),
        Figure(
            "engine_apart_per_s",
            "decisions, required anti-affinity by hostname, 5,000 nodes",
            "/s",
            25_000,
            at_most=False,
            reference="129 /s end to end",
        ),
        Figure(
            "engine_near_per_s",
            "decisions, required affinity by zone, 5,000 nodes",
            "/s",
            25_000,
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
    "farm": (
        Figure(
            "farm_claimed_s",
            "10,000 controllers, three member processes: all claimed and reconciled, from their start",
            "s",
            60,
        ),
        Figure("farm_rest_percent", "the busiest member at rest, of one core", "%", 5.0),
        Figure("farm_lease_writes_per_s", "Lease writes of a member at rest", "/s", 1.0),
        Figure("farm_change_ms", "a controller scaled up to its pod created, median", "ms", 20),
        Figure("farm_change_p99_ms", "the same, p99", "ms", 200),
        Figure(
            "farm_taken_over_s", "a member killed: every controller has an owner again", "s", 20
        ),
    ),
    "scale": (
        Figure("basic_1k_per_s", "decisions, one pod shape, 1,000 nodes", "/s"),
        Figure("basic_100k_per_s", "decisions, one pod shape, 100,000 nodes", "/s"),
        Figure(
            "flat_ratio", "cost of a decision at 100,000 nodes, against 1,000 nodes", "times", 2.0
        ),
        Figure("mixed_1k_per_s", "decisions, ten pod shapes interleaved, 1,000 nodes", "/s"),
        Figure(
            "mixed_100k_per_s",
            "decisions, ten pod shapes interleaved, 100,000 nodes",
            "/s",
            25_000,
            at_most=False,
        ),
        Figure(
            "resident_mb",
            "resident memory of the engine, 100,000 nodes with 500,000 pods",
            "MB",
            1024.0,
        ),
        Figure(
            "churn_per_s",
            "decisions and events, pods and nodes come and go, ten shapes, 5,000 nodes",
            "/s",
        ),
    ),
    "gangs": (
        Figure("gangs_8_per_s", "pods of gangs of 8, 5,000 nodes", "/s", 5_000, at_most=False),
        Figure("gangs_64_per_s", "pods of gangs of 64", "/s", 5_000, at_most=False),
        Figure("gangs_512_per_s", "pods of gangs of 512", "/s", 5_000, at_most=False),
        Figure("gangs_64_rack_per_s", "pods of gangs of 64, each in one of 100 racks", "/s"),
        Figure("gang_refused_ms", "a gang of 512 for which there is no room", "ms"),
    ),
    "preemption": (
        Figure(
            "preemption_per_s",
            "pods placed by preemption, 5,000 full nodes, three victims each: both decisions and the "
            "events of the victims' end",
            "/s",
            5_000,
            at_most=False,
        ),
        Figure(
            "preemption_crowd_per_s",
            "the same when 1,000 such pods are nominated before the first victim is gone",
            "/s",
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
    "rollout": (
        Figure(
            "rollout_simulated_s",
            "rollout of 1,000 packed replicas that start in 1 s, 25 % budget, simulated time",
            "s",
            60.0,
        ),
        Figure("rollout_cpu_s", "CPU of all its decisions", "s", 2.0),
        Figure("rollout_passes", "decisions it took", ""),
    ),
    "jobs": (
        Figure("jobs_running_s", "1,000 jobs of 8 pods: submitted until all run", "s", 15.0),
        Figure("jobs_running_cpu_s", "the same, processor time", "s"),
        Figure("jobs_cleaned_s", "the same: pods ended until jobs are cleaned up", "s", 15.0),
        Figure("jobs_cleaned_cpu_s", "the same, processor time", "s"),
        Figure("jobs_large_s", "one job of 5,000 pods: submitted until all run", "s", 10.0),
        Figure("jobs_large_cpu_s", "the same, processor time", "s"),
        Figure(
            "jobs_restart_per_s",
            "pods replaced when a job of 15,000 is restarted",
            "/s",
            1_000,
            at_most=False,
        ),
        Figure("jobs_restart_cpu_ms", "processor time of that, for each pod", "ms"),
        Figure("jobs_rest_percent", "10,000 finished jobs at rest, of one core", "%", 1.0),
    ),
    "sessions": (
        Figure("decision_ms", "CPU of a decision, 1,000 leases wait for 10 pools of 50", "ms", 1.0),
        Figure("decision_p99_ms", "the same, p99", "ms"),
        Figure("outlook_ms", "CPU to find position, reason and start of all that wait", "ms"),
        Figure("busy_percent", "machines that are granted meanwhile", "%", 95, at_most=False),
    ),
    "sessionruns": (
        Figure("sessions_memory_mb", "100 sessions of 5 components at once, peak", "MB", 150),
        Figure("sessions_running_s", "the same, from the first submission until all run", "s"),
        Figure("sessions_pods_ms", "a session from submission to its workers' pods", "ms"),
        Figure("sessions_pods_p99_ms", "the same, p99", "ms", 100),
        Figure("sessions_pods_cpu_p99_ms", "the same, CPU of server and controllers", "ms"),
        Figure("sessions_to_run_s", "1 driver and 3 workers, processes, submission to RUN", "s", 1),
        Figure("sessions_to_run_max_s", "the same, the longest of 5", "s"),
    ),
    "machines": (
        Figure("binding_ms", "CPU to bind 10,000 pods to 10,000 machines", "ms", 300),
        Figure("binding_empty_ms", "CPU to order 10,000 machines, 500 types, 3 zones", "ms"),
    ),
    "heartbeats": (
        Figure(
            "heartbeats_percent",
            "5,000 machines heartbeating, processor time, of one core",
            "%",
            10,
        ),
        Figure("renewals_percent", "of that, renewed Leases", "%"),
        Figure("status_percent", "of that, status of Nodes", "%"),
        Figure("looks_percent", "of that, the node controller's looks", "%"),
        Figure("renewal_us", "processor time of one renewal", "µs"),
    ),
    "machine_claims": (
        Figure("claim_p50_ms", "a waiting pod gets a machine that stands by, p50", "ms"),
        Figure("claim_p99_ms", "the same, p99", "ms", 20),
        Figure("machine_running_s", "machine from pending pod to Running, provider local", "s", 2),
        Figure("machine_running_cpu_s", "the same, processor time of control plane and agent", "s"),
    ),
    "packing": (
        Figure(
            "packed_mixed_per_s",
            "10,000 mixed pods packed on machines of 500 types, a second of CPU",
            "/s",
            2_000,
            at_most=False,
        ),
        Figure("packed_plain_per_s", "the same with pods without rules", "/s"),
        Figure("packed_skipped", "of the mixed ones, pods that got no machine", ""),
        Figure(
            "cost_of_karpenter_percent", "price of the plan, of that in Karpenter's order", "%", 101
        ),
        Figure("cost_of_first_fit_percent", "the same, of first-fit-decreasing, best type", "%"),
    ),
    "api": (
        Figure("check_us", "schema check of a 1.4 KB pod", "µs"),
        Figure("create_path_us", "decode, defaults, checks and encoding of it", "µs"),
        Figure("first_path_us", "the same when no pod had these containers before", "µs"),
    ),
    "why": (
        Figure("why_cpu_ms", "why a pod that is too big waits, 5,000 nodes, 50,000 pods", "ms", 20),
        Figure("why_apart_ms", "why one with required anti-affinity waits", "ms", 20),
        Figure("why_placed_ms", "why a pod is where it is", "ms", 20),
    ),
    "simulate": (
        Figure("simulated_best_fit_per_s", "pods simulated, 1,200 GPU nodes, best-fit", "/s"),
        Figure("simulated_fgd_per_s", "the same, fragmentation gradient descent", "/s"),
    ),
}
