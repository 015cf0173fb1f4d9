"""Which container of a pod a request is about."""

from grange.api.meta import Document
from grange.api.status import BadRequest

_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


def choose_container(pod: Document, wanted: str) -> str:
    """The name of the container; it is found where the pod has but one.

    Args:
        pod: as stored.
        wanted: its name as requested; empty for none.

    Raises:
        BadRequest: there is none of that name, or there are several and none is named.
    """
    spec, name = pod.get("spec") or {}, pod["metadata"]["name"]
    containers = [item["name"] for item in spec.get("containers") or []]
    others = [
        item["name"]
        for field in ("initContainers", "ephemeralContainers")
        for item in spec.get(field) or []
    ]
    if wanted:
        if wanted not in (*containers, *others):
            raise BadRequest(f"container {wanted} is not valid for pod {name}")
        return wanted
    annotated = (pod["metadata"].get("annotations") or {}).get(_DEFAULT_CONTAINER)
    if annotated in containers:
        return str(annotated)
    if len(containers) == 1:
        return str(containers[0])
    raise BadRequest(
        f"a container name must be specified for pod {name}, choose one of: {containers}"
    )
