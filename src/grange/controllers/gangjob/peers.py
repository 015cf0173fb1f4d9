"""How the members of a job reach each other: by name, or by addresses where names do not resolve.

What is written into a pod must hold as long as its peers run: both ways answer the same for a role
and an index in every attempt and after scaling.
"""

from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Address
from typing import Protocol

from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.api.pod_addresses import JOB_ADDRESSES, POD_IP
from grange.controllers.gangjob.address_blocks import AddressBlocks, loopback_network, machine_of
from grange.controllers.gangjob.errors import InvalidJob
from grange.controllers.gangjob.model import JobModel, JobRole, ServiceMode

PodName = Callable[[str, int], str]
"""The name of the pod of a role and an index."""


class Peers(Protocol):
    """Where the members of one job are."""

    @property
    def resolvable(self) -> bool:
        """Whether members are names (else they are loopback addresses of one machine)."""

    def pod(self, role: str, index: int) -> str:
        """The name of a member's pod."""

    def host(self, role: str, index: int) -> str:
        """The full host name of a member, or its address."""

    def short_host(self, role: str, index: int) -> str:
        """The host name as the job's own namespace resolves it, or the address."""

    def annotations(self, role: str, index: int) -> dict[str, str]:
        """The annotations by which a member's pod gets its address."""

    def port(self, role: str, index: int, declared: int, default: int) -> int:
        """The port that a member's framework listens on.

        Args:
            role: of the member.
            index: of the member.
            declared: the port that the pod's template has.
            default: the framework's; declaring it is no choice of the user.
        """

    def path(self, path: str) -> str:
        """A path of a mount as a container's command and environment have to have it."""


class NamedPeers:
    """Members behind headless Services.

    Args:
        model: the job.
        pod_name: names of its pods.
        domain: of the cluster, e.g. ``cluster.local``; empty: the resolver completes the names.
    """

    def __init__(self, model: JobModel, pod_name: PodName, *, domain: str = "") -> None:
        self._subdomain = f".{model.name}" if model.services is ServiceMode.JOB else ""
        self._suffix = f".{model.namespace}.svc" + (f".{domain}" if domain else "")
        self._pod_name = pod_name

    @property
    def resolvable(self) -> bool:
        """Members are names."""
        return True

    def pod(self, role: str, index: int) -> str:
        """The name of a member's pod."""
        return self._pod_name(role, index)

    def host(self, role: str, index: int) -> str:
        """``<pod>[.<job>].<namespace>.svc[.<domain>]``."""
        return self.short_host(role, index) + self._suffix

    def short_host(self, role: str, index: int) -> str:
        """``<pod>[.<job>]``."""
        return self._pod_name(role, index) + self._subdomain

    def annotations(self, role: str, index: int) -> dict[str, str]:
        """None: names lead to any address."""
        return {}

    def port(self, role: str, index: int, declared: int, default: int) -> int:
        """The declared one: every pod has all ports for itself."""
        return declared

    def path(self, path: str) -> str:
        """The path itself: each container has its file system."""
        return path


class AddressedPeers:
    """Members at fixed loopback addresses.

    Args:
        model: the job.
        pod_name: names of its pods.
        blocks: of all jobs; this one's is reserved.
    """

    def __init__(self, model: JobModel, pod_name: PodName, blocks: AddressBlocks) -> None:
        self._pod_name = pod_name
        self._blocks = blocks
        self._block = blocks.reserve(model.uid, max(1, sum(map(capacity, model.roles))))
        self._model = model

    @property
    def resolvable(self) -> bool:
        """Members are addresses."""
        return False

    def pod(self, role: str, index: int) -> str:
        """The name of a member's pod."""
        return self._pod_name(role, index)

    def host(self, role: str, index: int) -> str:
        """The address."""
        return str(IPv4Address(self._number(role, index)))

    def short_host(self, role: str, index: int) -> str:
        """The address."""
        return self.host(role, index)

    def annotations(self, role: str, index: int) -> dict[str, str]:
        """The address, and the job's block, by which a new controller knows it."""
        first, last = IPv4Address(self._block.start), IPv4Address(self._block.stop - 1)
        return {POD_IP: self.host(role, index), JOB_ADDRESSES: f"{first}-{last}"}

    def port(self, role: str, index: int, declared: int, default: int) -> int:
        """The user's, or one that no other member has: many programs bind all addresses."""
        if declared != default:
            return declared
        return self._blocks.port(self._number(role, index))

    def path(self, path: str) -> str:
        """Below the container's root: mounts are links there."""
        return f"$(GRANGE_ROOT){path}"

    def _number(self, role: str, index: int) -> int:
        return self._block.start + offset(self._model, role, index)


def capacity(role: JobRole) -> int:
    """The most pods that a role may have."""
    return max(role.replicas, role.max_replicas or 0)


def offset(model: JobModel, role: str, index: int) -> int:
    """The position of a member among all of a job: by role, then by index.

    Raises:
        InvalidJob: there is no such role.
    """
    before = 0
    for item in model.roles:
        if item.name.lower() == role.lower():
            return before + index
        before += capacity(item)
    raise InvalidJob(f"spec.replicaSpecs: there is no role {role}; name one of the job's roles")


class PeerDirectory:
    """Decides for all jobs of a controller whether members are names or addresses.

    Args:
        domain: of the cluster, e.g. ``cluster.local``; empty: the resolver completes the names.
    """

    def __init__(self, *, domain: str = "") -> None:
        self._domain = domain
        self._blocks: AddressBlocks | None = None
        self._machines: dict[str, str] = {}  # by name of the node
        self._apart = False

    def update(self, nodes: Sequence[Node], pods: Iterable[Pod]) -> None:
        """Go by the nodes as they are; call it whenever they change.

        Args:
            nodes: all nodes.
            pods: all pods; read where the nodes' range has changed, to know the blocks of jobs.
        """
        self._machines = {node.metadata.name: machine_of(node) for node in nodes}
        self._apart = len({*self._machines.values()}) > 1
        network = loopback_network(nodes)
        if network is None:
            self._blocks = None
        elif self._blocks is None or self._blocks.network != network:
            self._blocks = AddressBlocks(network)
            for pod in pods:
                self._blocks.adopt(pod)

    def peers(self, model: JobModel, pod_name: PodName) -> Peers:
        """The members of a job."""
        if self._blocks is None:
            return NamedPeers(model, pod_name, domain=self._domain)
        return AddressedPeers(model, pod_name, self._blocks)

    def separated(self, pods: Iterable[Pod]) -> list[str]:
        """The nodes of pods that do not all reach each other at their addresses; empty: they do."""
        if not self._apart:
            return []
        found = {
            name: self._machines[name]
            for pod in pods
            if not pod.spec.host_network and (name := pod.spec.node_name) in self._machines
        }
        return sorted(found) if len({*found.values()}) > 1 else []

    def forget(self, uid: str) -> None:
        """The job is gone, and its pods are."""
        if self._blocks is not None:
            self._blocks.release(uid)
