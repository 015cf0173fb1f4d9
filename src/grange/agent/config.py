"""Settings of the node agent."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from grange.agent.container_runtime import ContainerID
from grange.agent.eviction_thresholds import DEFAULT_THRESHOLDS
from grange.agent.resolver_config import ResolverConfig
from grange.api.kinds.node import Taint
from grange.api.pod_fields import (
    AGENT_USER_LABEL,
    IMAGES_LABEL,
    ISOLATION_LABEL,
    LIMITS_LABEL,
    NETWORK_LABEL,
    Feature,
)
from grange.base.backoff import Exponential


@dataclass(frozen=True, slots=True)
class Timing:
    """How long things take and how often they are tried.

    Attributes:
        restart_backoff_initial_s: wait before the second restart in a row (the first is at once);
            it doubles from there. Kubernetes uses 10; a single machine need not be so careful.
        restart_backoff_cap_s: no wait is longer.
        restart_backoff_reset_s: a container that ran so long starts over with the first restart.
        retry_initial_s: wait before trying again to create what could not be created; doubles.
        retry_cap_s: no such wait is longer.
        retry_lasting_s: the wait where the container cannot be created on this node at all.
        probe_fast_s: wait between the first readiness and startup probes of a container without
            ``initialDelaySeconds``; it grows by a quarter each time up to ``periodSeconds``, and
            these probes do not use up ``failureThreshold`` faster than the period would.
        vanished_grace_s: at most so long may a pod take to stop whose object is gone already.
        heartbeat_s: how often the node's Lease is renewed.
        lease_duration_s: the duration that the Lease states.
        status_heartbeat_s: how often the node's status is written though nothing changed.
    """

    restart_backoff_initial_s: float = 1.0
    restart_backoff_cap_s: float = 300.0
    restart_backoff_reset_s: float = 600.0
    retry_initial_s: float = 0.5
    retry_cap_s: float = 10.0
    retry_lasting_s: float = 300.0
    probe_fast_s: float = 0.03
    vanished_grace_s: float = 2.0
    heartbeat_s: float = 10.0
    lease_duration_s: int = 40
    status_heartbeat_s: float = 300.0

    @property
    def restarts(self) -> Exponential:
        """Waits by number of restarts in a row after the first."""
        return Exponential(self.restart_backoff_initial_s, self.restart_backoff_cap_s)

    @property
    def retries(self) -> Exponential:
        """Waits by number of failed tries."""
        return Exponential(self.retry_initial_s, self.retry_cap_s)


DEFAULT_ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
}


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """One node.

    Attributes:
        name: of the Node object.
        capacity: resource name to quantity, e.g. ``{"cpu": "2", "memory": "4Gi", "pods": "110"}``.
        labels: in addition to ``kubernetes.io/hostname``, ``kubernetes.io/os`` and ``kubernetes.io/arch``.
        taints: that the Node has when it is registered first; what has them taken off is for others.
        pod_network: range of the pods' addresses in CIDR notation, for ``spec.podCIDR`` of the Node;
            empty: it is not known.
        host_ip: the machine's address, as ``status.hostIP`` and the node's InternalIP.
        environment: what every container starts with; the server's own environment, which may
            hold tokens, is never passed on.
        own_objects_only: watch only this node and its pods; False shares the process's one copy of
            all, which is cheaper where the scheduler keeps it anyway.
        timing: waits and intervals.
        runtime: name of what runs the containers, in ``containerID`` and in the Node's status.
        isolation: what separates its pods from each other and from the machine, for the Node.
        network: what its programs get that listen on all addresses, for the Node.
        host_paths: where volumes of type ``hostPath`` may lie; empty for anywhere.
        limits: what holds containers to their limits, for the Node.
        name_files: its containers have ``/etc/hosts`` and ``/etc/resolv.conf`` to themselves.
        cluster_dns: address of a DNS server for names of Services; empty where there is none.
        resolver: how the machine resolves names.
        images: containers can be made from images.
        interrupted: runs that ended because the node was stopped, as ``interrupted_runs`` has them.
        eviction: thresholds of disk pressure, as ``eviction_thresholds`` reads them.
        agent_port: where the agent's server listens; 0 where it has none.
        user, group: of the agent, and of its pods' programs unless they ask for others.
    """

    name: str
    capacity: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    pod_network: str = ""
    host_ip: str = "127.0.0.1"
    environment: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_ENVIRONMENT))
    own_objects_only: bool = True
    timing: Timing = field(default_factory=Timing)
    runtime: str = "process"
    isolation: str = "none"
    network: str = "shared"
    host_paths: tuple[str, ...] = ()
    limits: str = "none"
    name_files: bool = False
    cluster_dns: str = ""
    resolver: ResolverConfig = field(default_factory=ResolverConfig)
    user: int = field(default_factory=os.geteuid)
    group: int = field(default_factory=os.getegid)
    agent_port: int = 0
    images: bool = False
    interrupted: frozenset[ContainerID] = frozenset()
    eviction: str = DEFAULT_THRESHOLDS

    @property
    def feature_labels(self) -> dict[str, str]:
        """The labels of the Node that fields of pods depend on."""
        return {
            ISOLATION_LABEL: self.isolation,
            NETWORK_LABEL: self.network,
            LIMITS_LABEL: self.limits,
            AGENT_USER_LABEL: "root" if self.user == 0 else "other",
            IMAGES_LABEL: "true" if self.images else "false",
        }

    @property
    def features(self) -> frozenset[Feature]:
        """What the node has that fields of pods depend on."""
        labels = self.feature_labels
        return frozenset(item for item in Feature if labels[item.value[0]] == item.value[1])
