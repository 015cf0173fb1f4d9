"""The pods of a session: which there are, and on which machines. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from grange.api.kinds.machinelease import LeasedMachine, PoolRequest
from grange.api.kinds.testsession import (
    SessionComponent,
    TestSession,
    components,
    pod_names,
)
from grange.api.validation.testsessions import PODS_MAX

DRIVER, SERVER, CLIENT = "driver", "server", "client"


@dataclass(frozen=True, slots=True)
class ComponentPod:
    """One pod that a session is to have.

    Attributes:
        name: of the pod.
        member: name of the component, with the pod's index where it has several.
        component: name of the component.
        role: driver, server, client or a further one.
        spec: of the component.
    """

    name: str
    member: str
    component: str
    role: str
    spec: SessionComponent

    @property
    def is_driver(self) -> bool:
        """Whether its outcome is the verdict."""
        return self.role == DRIVER


@dataclass(frozen=True, slots=True)
class WorkerAddress:
    """Where a worker can be reached.

    Attributes:
        pod: of the worker.
        address: of the pod.
        node: where it runs.
    """

    pod: ComponentPod
    address: str
    node: str = ""

    @property
    def text(self) -> str:
        """``host:port``, with an IPv6 address in brackets."""
        return host_and_port(self.address, self.pod.spec.port)


def pod_count(session: TestSession) -> int:
    """How many pods a session asks for."""
    return sum(max(0, item.count) for _, _, item in components(session.spec))


def component_pods(session: TestSession) -> tuple[ComponentPod, ...]:
    """All pods of a session: servers, clients, further roles, the driver last.

    None where there are more than a session may have; its spec is not valid.
    """
    name = session.metadata.name
    if pod_count(session) > PODS_MAX:
        return ()
    return tuple(
        ComponentPod(pod, pod.removeprefix(f"{name}-"), component, role, spec)
        for role, component, spec in components(session.spec)
        for pod in pod_names(name, component, spec.count)
    )


def pool_of(pod: ComponentPod, default_pools: Mapping[str, str]) -> str:
    """The pool that a pod gets a machine of; empty for none."""
    return pod.spec.pool or default_pools.get(pod.role, "")


def machine_requests(
    pods: Iterable[ComponentPod], default_pools: Mapping[str, str]
) -> tuple[PoolRequest, ...]:
    """The machines that a session needs, by pool in the order of their first pods."""
    counts: dict[str, int] = {}
    for pod in pods:
        if pool := pool_of(pod, default_pools):
            counts[pool] = counts.get(pool, 0) + 1
    return tuple(PoolRequest(pool, count) for pool, count in counts.items())


def assign(
    pods: Iterable[ComponentPod],
    machines: Sequence[LeasedMachine],
    default_pools: Mapping[str, str],
) -> dict[str, str] | None:
    """The machine of each pod that needs one, by the pod's name.

    The same in every pass, as long as the lease has the same machines. None where these are not what
    the session needs, because the default pools have changed since it asked.
    """
    left: dict[str, list[str]] = {}
    for machine in machines:
        left.setdefault(machine.pool, []).append(machine.node)
    assigned: dict[str, str] = {}
    for pod in pods:
        if pool := pool_of(pod, default_pools):
            if not left.get(pool):
                return None
            assigned[pod.name] = left[pool].pop(0)
    return assigned


def host_and_port(host: str, port: int) -> str:
    """``host:port``, with an IPv6 address in brackets."""
    try:
        six = isinstance(ip_address(host), IPv6Address)
    except ValueError:
        six = False
    return f"[{host}]:{port}" if six else f"{host}:{port}"
