"""The variables by which a container finds the Services of its namespace: pure.

As kubelet has them: ``NAME_SERVICE_HOST`` and ``NAME_SERVICE_PORT``, one more for each named port, and
those of Docker's links. Services that are created later have none; names do.
"""

from collections.abc import Iterable

from grange.api.kinds.pod import Pod
from grange.api.kinds.service import Service
from grange.api.meta import ObjectKey
from grange.api.validation.services import HEADLESS

_API = ObjectKey("default", "kubernetes")  # the node knows where it listens


def service_variables(pod: Pod, services: Iterable[Service]) -> dict[str, str]:
    """The variables of a pod's containers; none where it does not want them.

    Args:
        pod: whose.
        services: of its namespace.
    """
    found: dict[str, str] = {}
    if pod.spec.enable_service_links is False:
        return found
    for service in sorted(services, key=lambda item: item.metadata.name):
        spec = service.spec
        if spec.cluster_ip in ("", HEADLESS) or not spec.ports or service.key == _API:
            continue
        name = _variable(service.metadata.name)
        host, first = spec.cluster_ip, spec.ports[0]
        found[f"{name}_SERVICE_HOST"] = host
        found[f"{name}_SERVICE_PORT"] = str(first.port)
        found[f"{name}_PORT"] = f"{first.protocol.lower()}://{host}:{first.port}"
        for port in spec.ports:
            if port.name:
                found[f"{name}_SERVICE_PORT_{_variable(port.name)}"] = str(port.port)
            link = f"{name}_PORT_{port.port}_{port.protocol}"
            found[link] = f"{port.protocol.lower()}://{host}:{port.port}"
            found[f"{link}_PROTO"] = port.protocol.lower()
            found[f"{link}_PORT"] = str(port.port)
            found[f"{link}_ADDR"] = host
    return found


def _variable(name: str) -> str:
    return name.upper().replace("-", "_").replace(".", "_")
