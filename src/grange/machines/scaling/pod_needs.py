"""What a pod asks of the machine that it gets alone."""

from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

import msgspec

from grange.api import quantity
from grange.api.kinds.machine import NODE_POOL_LABEL, Machine
from grange.api.kinds.nodepool import (
    DEDICATED_CPU_ANNOTATION,
    PRIVATE_IP_ANNOTATION,
    SPOT_ALWAYS,
    SPOT_ANNOTATION,
    SPOT_NEVER,
    SPOT_PREFERRED,
    SUSTAINED_CPU_ANNOTATION,
    VOLUME_SIZE_ANNOTATION,
    NodePoolSpec,
)
from grange.api.kinds.pod import Pod
from grange.api.pod_requests import Resources, pod_request
from grange.base.errors import GrangeError
from grange.machines.scaling.instance_selector import INSTANCE_TYPE_LABEL, ZONE_LABEL

_GIB = 1024**3
SPOT_POLICIES = (SPOT_NEVER, SPOT_PREFERRED, SPOT_ALWAYS)


class UnusableNeed(GrangeError):
    """A pod asks for something that cannot be understood; the message names the field."""


_NO_REQUEST = Resources()


class PodNeed(msgspec.Struct, frozen=True):
    """What a pod asks of its machine.

    Attributes:
        pod: ``namespace/name``.
        uid: of the pod.
        priority: of the pod; higher ones are served first.
        created: RFC 3339; older ones are served first.
        request: what it requests.
        instance_type: the only one that it may have; empty: any that holds the request.
        spot: one of ``SPOT_POLICIES``.
        zone: the only one that it may be in; empty: any.
        private_ip_only: no public address; its machine must have none either.
        dedicated_cpu: no burstable type.
        sustained_cpu: see ``InstanceSelector.choices``.
        volume_gib: size of the root disk; zero: the pool's default.
    """

    pod: str
    uid: str
    priority: int = 0
    created: str = ""
    request: Resources = _NO_REQUEST
    instance_type: str = ""
    spot: str = SPOT_NEVER
    zone: str = ""
    private_ip_only: bool = False
    dedicated_cpu: bool = False
    sustained_cpu: bool | None = None
    volume_gib: int = 0

    @property
    def order(self) -> tuple[int, bool, str, str]:
        """Who goes first: priority, then who can use few machines, then age."""
        return (-self.priority, not self.zone, self.created, self.pod)

    @property
    def shape(self) -> tuple[object, ...]:
        """Pods of one shape can use the same machines."""
        request = self.request
        return (
            request.cpu_milli,
            request.memory_bytes,
            *(sorted(request.scalars.items()) if request.scalars else ()),
            self.instance_type,
            self.spot,
            self.zone,
            self.private_ip_only,
            self.dedicated_cpu,
            self.sustained_cpu,
            self.volume_gib,
        )


def waits_for(pod: Pod, pool: str) -> bool:
    """Whether a pod waits for a machine of a dedicated pool.

    One that failed does not until its controller creates it again, one that is deleted never.
    """
    return (
        pod.spec.node_selector.get(NODE_POOL_LABEL) == pool
        and not pod.spec.node_name
        and not pod.spec.scheduling_gates
        and pod.metadata.deletion_timestamp is None
        and pod.status.phase in ("", "Pending")
    )


def need_of(pod: Pod, spec: NodePoolSpec) -> PodNeed:
    """What a pod asks of a machine of a pool.

    Raises:
        UnusableNeed: an annotation has a value that is not known.
    """
    annotations, selector = pod.metadata.annotations, pod.spec.node_selector
    preferences = _preferences(annotations) if annotations else _NO_PREFERENCES
    request = pod_request(pod.spec).resources
    spot = preferences.spot or spec.spot
    if spot not in SPOT_POLICIES:
        raise UnusableNeed(
            f"metadata.annotations[{SPOT_ANNOTATION}]: {spot!r} is none of "
            f"{', '.join(SPOT_POLICIES)}"
        )
    named = selector.get(INSTANCE_TYPE_LABEL, "")
    if not named and not (request.cpu_milli or request.memory_bytes or request.scalars):
        named = spec.default_instance_type
    return PodNeed(
        pod=str(pod.key),
        uid=pod.metadata.uid,
        priority=pod.spec.priority,
        created=pod.metadata.creation_timestamp or "",
        request=request,
        instance_type=named,
        spot=spot,
        zone=selector.get(ZONE_LABEL, ""),
        private_ip_only=preferences.private_ip_only or False,
        dedicated_cpu=preferences.dedicated_cpu or False,
        sustained_cpu=preferences.sustained_cpu,
        volume_gib=preferences.volume_gib,
    )


class _Preferences(NamedTuple):
    """What the annotations of a pod ask of its machine; see ``PodNeed``."""

    spot: str = ""
    private_ip_only: bool | None = None
    dedicated_cpu: bool | None = None
    sustained_cpu: bool | None = None
    volume_gib: int = 0


_NO_PREFERENCES = _Preferences()


def _preferences(annotations: Mapping[str, str]) -> _Preferences:
    return _Preferences(
        annotations.get(SPOT_ANNOTATION, ""),
        _flag(annotations, PRIVATE_IP_ANNOTATION),
        _flag(annotations, DEDICATED_CPU_ANNOTATION),
        _flag(annotations, SUSTAINED_CPU_ANNOTATION),
        _gib(
            annotations.get(VOLUME_SIZE_ANNOTATION, ""),
            f"metadata.annotations[{VOLUME_SIZE_ANNOTATION}]",
        ),
    )


def gib(size: str) -> int:
    """A quantity in GiB, rounded up; zero for none or what is no quantity."""
    try:
        return ceil(quantity.value(size) / _GIB) if size else 0
    except quantity.QuantityError:
        return 0


def machine_gib(machine: Machine) -> int:
    """Size of a machine's root disk as it was ordered; zero for the image's."""
    return gib(machine.spec.resources.volume_size)


def _gib(size: str, path: str) -> int:
    found = gib(size)
    if size and found <= 0:
        raise UnusableNeed(f'{path}: {size!r} is no quantity above 0, e.g. "20Gi"')
    return found


def _flag(annotations: Mapping[str, str], annotation: str) -> bool | None:
    given = annotations.get(annotation)
    if given is None:
        return None
    if given not in ("true", "false"):
        raise UnusableNeed(
            f'metadata.annotations[{annotation}]: {given!r} is neither "true" nor "false"'
        )
    return given == "true"
