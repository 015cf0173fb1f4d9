"""What a fresh worker knows of a pod that an earlier agent ran; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from grange.agent import lifecycle, pod_status
from grange.agent.config import NodeConfig, Timing
from grange.agent.container_runtime import PodRecord, Run
from grange.agent.lifecycle import ManagedContainer
from grange.api.kinds.pod import Pod


def runs_by_container(
    pod: Pod, record: PodRecord | None, config: NodeConfig, now: datetime
) -> Mapping[str, list[Run]]:
    """The runs of each container as the runtime knows them, or as the status records them.

    Args:
        pod: with its status.
        record: what the runtime knows of it; None for nothing: how its runs ended is not known.
        config: of the node.
        now: wall time.
    """
    if record is None:
        recorded_runs = pod_status.runs_of(pod).items()
        return {name: [pod_status.lost(run, now) for run in items] for name, items in recorded_runs}
    runs: dict[str, list[Run]] = {}
    recorded = pod_status.messages_of(pod)
    for run in record.runs:
        message = run.message or recorded.get(pod_status.container_id(run, config.runtime), "")
        interrupted = run.id in config.interrupted
        found = run if run.running else replace(run, message=message, interrupted=interrupted)
        runs.setdefault(run.id.container, []).append(found)
    return runs


def adopt_runs(
    containers: Sequence[ManagedContainer],
    pod: Pod,
    runs: Mapping[str, list[Run]],
    now: datetime,
    timing: Timing,
) -> None:
    """Let the containers take over their runs."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    counted = {item.name: item.restart_count for item in statuses}
    replaced = lifecycle.is_replaced(pod)
    for container in containers:
        lifecycle.adopt(
            container,
            runs.get(container.name, ()),
            now,
            timing,
            replaced=replaced,
            counted=counted.get(container.name, 0),
        )


def restore_readiness(container: ManagedContainer, pod: Pod) -> None:
    """Let what the probes of a running container had found hold until they ask again."""
    for item in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        if item.name == container.name and item.restart_count == container.attempt:
            container.started = bool(item.started)
            container.ready = item.ready
