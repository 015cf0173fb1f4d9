"""What the status of a session has about its components. Pure."""

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from grange.api.kinds.testsession import SessionComponentStatus
from grange.controllers.testsession.attempt_outcome import main_status, termination
from grange.controllers.testsession.component_pods import ComponentPod, host_and_port
from grange.controllers.testsession.health import Health
from grange.controllers.testsession.session_inputs import DiagnosedPod

_GONE = "the pod is gone"


def component_statuses(
    wanted: Iterable[ComponentPod],
    found: Mapping[str, DiagnosedPod],
    before: Collection[SessionComponentStatus],
) -> tuple[SessionComponentStatus, ...]:
    """One entry for each pod of the session; what was known of a pod that is gone is kept."""
    known = {item.name: item for item in before}
    return tuple(
        _component_status(pod, found.get(pod.name), known.get(pod.member)) for pod in wanted
    )


def lost_pods(
    wanted: Iterable[ComponentPod],
    found: Mapping[str, DiagnosedPod],
    before: Collection[SessionComponentStatus],
) -> tuple[str, ...]:
    """Names of the pods that the status has, and that are not there any more."""
    seen = {item.pod for item in before if item.pod}
    return tuple(pod.name for pod in wanted if pod.name in seen and pod.name not in found)


def is_settled(item: DiagnosedPod | None) -> bool:
    """Whether a worker is ready to be used, or has done its work."""
    if item is None or not item.pod.status.pod_ip:
        return False
    return (
        item.health in (Health.READY, Health.SUCCEEDED) and not item.pod.metadata.deletion_timestamp
    )


def not_ready(
    wanted: Iterable[ComponentPod], found: Mapping[str, DiagnosedPod], limit: int = 5
) -> str:
    """Names the components that are not ready, and why; at most so many of them."""
    missing = [pod for pod in wanted if not is_settled(found.get(pod.name))]
    listed = [_reason(pod, found.get(pod.name)) for pod in missing[:limit]]
    more = [f"and {len(missing) - limit} more"] if len(missing) > limit else []
    return ", ".join([*listed, *more])


def _reason(pod: ComponentPod, item: DiagnosedPod | None) -> str:
    if item is None:
        return f"{pod.member} (not created)"
    if item.health is Health.READY:
        return f"{pod.member} (no address)"
    why = item.diagnosis.message or item.pod.status.phase or "Pending"
    return f"{pod.member} ({item.health}: {why})"


def _component_status(
    pod: ComponentPod, item: DiagnosedPod | None, before: SessionComponentStatus | None
) -> SessionComponentStatus:
    if item is None:
        if before is None or not before.pod:
            return SessionComponentStatus(name=pod.member, role=pod.role)
        if before.health in (str(Health.SUCCEEDED), str(Health.FAILED)):
            return before
        return replace(before, health=str(Health.FAILED), message=_GONE)
    status, ended = main_status(item.pod), termination(item.pod)
    address = item.pod.status.pod_ip
    started = ended.started_at if ended is not None else None
    if started is None and status is not None and status.state.running is not None:
        started = status.state.running.started_at
    return SessionComponentStatus(
        name=pod.member,
        role=pod.role,
        pod=pod.name,
        node=item.pod.spec.node_name,
        address=host_and_port(address, pod.spec.port) if address else "",
        health=str(item.health),
        message=item.diagnosis.message,
        exit_code=item.diagnosis.exit_code,
        image=(status.image_id or status.image) if status is not None else "",
        started_time=started,
        finished_time=ended.finished_at if ended is not None else None,
    )
