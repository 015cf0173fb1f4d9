"""What a pod asks of a node, in whole units: milli-CPU, bytes, and integers for everything else.

The rules are those of kube-scheduler: containers run together, init containers one after another
plus the sidecars declared before them; amounts add exactly and the sum rounds up; what is left
unsaid counts as zero when fitting, and as a small default (the non-zero view) when scoring.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil
from types import MappingProxyType

import msgspec

from grange.api import quantity
from grange.api.kinds.pod import (
    Container,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Scalar,
    condition,
)
from grange.api.meta import Document

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"

DEFAULT_CPU_MILLI = 100
DEFAULT_MEMORY_BYTES = 200 * 2**20

# Sums and hundredfold products of amounts must stay within int64, and ratios within the exact
# integers of a double. A request may exceed every node, hence its higher ceiling.
AMOUNT_MAX = 2**53
REQUEST_MAX = 2**54

Exact = int | Fraction
"""An amount before it is rounded: thousandths of a CPU, units of all else."""

RESIZE_PENDING, RESIZE_IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
"""Conditions of a pod whose resources are not what its spec asks for, as Kubernetes names them."""
INFEASIBLE, DEFERRED = "Infeasible", "Deferred"
"""Reasons of a resize that is pending: the node is too small, or has too little left now."""

NO_SCALARS: Mapping[str, int] = MappingProxyType({})
_NONE: Document = {}
_PLAIN = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE, PODS})
_POD_LEVEL = frozenset({CPU, MEMORY})


class Resources(msgspec.Struct, frozen=True, gc=False):
    """Amounts of the resources that nodes are made of.

    Attributes:
        cpu_milli: thousandths of a CPU.
        memory_bytes: memory.
        ephemeral_bytes: local storage that goes with the pod.
        pods: how many pods (allocatable only; a pod's own request is always one).
        scalars: extended resources, huge pages and attachable volumes by name; zeros are kept.
    """

    cpu_milli: int = 0
    memory_bytes: int = 0
    ephemeral_bytes: int = 0
    pods: int = 0
    scalars: Mapping[str, int] = NO_SCALARS


class PodRequest(msgspec.Struct, frozen=True, gc=False):
    """What one pod needs.

    Attributes:
        resources: what must fit.
        nonzero_cpu_milli: the CPU that scoring assumes.
        nonzero_memory_bytes: the memory that scoring assumes.
    """

    resources: Resources
    nonzero_cpu_milli: int
    nonzero_memory_bytes: int


def is_scalar(name: str) -> bool:
    """Whether a resource beyond CPU, memory, storage and pods is one that nodes account for."""
    if name.startswith(("hugepages-", "attachable-volumes-")):
        return True
    return "/" in name and not name.startswith("requests.")


@lru_cache(maxsize=8192)
def _amount(name: str, given: Scalar, ceiling: int) -> int:
    exact = quantity.milli(given) if name == CPU else quantity.value(given)
    return max(0, min(ceiling, exact))


def _amounts(given: Mapping[str, Scalar], ceiling: int) -> dict[str, int]:
    return {
        name: _amount(name, amount, ceiling)
        for name, amount in given.items()
        if name in _PLAIN or is_scalar(name)
    }


@lru_cache(maxsize=8192)
def _exact_amount(name: str, given: Scalar) -> Exact:
    # Kubernetes keeps no digits below a nano: parsing rounds them up.
    exact = Fraction(ceil(quantity.parse(given) * 10**9), 10**9) * (1000 if name == CPU else 1)
    clamped = max(Fraction(0), min(Fraction(REQUEST_MAX), exact))
    return clamped.numerator if clamped.denominator == 1 else clamped


def _exact_amounts(given: Mapping[str, Scalar]) -> dict[str, Exact]:
    return {
        name: _exact_amount(name, amount)
        for name, amount in given.items()
        if name in _PLAIN or is_scalar(name)
    }


def _resources(amounts: Mapping[str, int]) -> Resources:
    scalars = {name: amount for name, amount in amounts.items() if name not in _PLAIN}
    return Resources(
        amounts.get(CPU, 0),
        amounts.get(MEMORY, 0),
        amounts.get(EPHEMERAL_STORAGE, 0),
        amounts.get(PODS, 0),
        MappingProxyType(scalars) if scalars else NO_SCALARS,
    )


@lru_cache(maxsize=1024)
def _offer(given: tuple[tuple[str, Scalar], ...]) -> Resources:
    return _resources(_amounts(dict(given), AMOUNT_MAX))


def allocatable(given: Mapping[str, Scalar]) -> Resources:
    """What a node offers; names that are not accounted for are dropped.

    Nodes with equal values mostly share one object.

    Raises:
        quantity.QuantityError: an amount is no quantity.
    """
    return _offer(tuple(given.items()))


def _add(total: dict[str, Exact], amounts: Mapping[str, Exact]) -> None:
    for name, amount in amounts.items():
        total[name] = min(REQUEST_MAX, total.get(name, 0) + amount)


def _raise_to(total: dict[str, Exact], amounts: Mapping[str, Exact]) -> None:
    for name, amount in amounts.items():
        total[name] = max(total.get(name, 0), amount)


def _aggregate(
    containers: Iterable[Container], init: Iterable[Container], missing: Mapping[str, int]
) -> dict[str, Exact]:
    """The most that runs at once; ``missing`` stands in for requests a container leaves out."""
    running: dict[str, Exact] = {}
    for container in containers:
        _add(running, {**missing, **_exact_amounts(container.resources.requests)})
    sidecars: dict[str, Exact] = {}
    peak: dict[str, Exact] = {}
    for container in init:
        own = {**missing, **_exact_amounts(container.resources.requests)}
        if container.restart_policy == "Always":
            _add(running, own)
            _add(sidecars, own)
            _raise_to(peak, sidecars)
        else:
            _add(own, sidecars)
            _raise_to(peak, own)
    _raise_to(running, peak)
    return running


def _pod_level(spec: PodSpec) -> dict[str, Exact]:
    if spec.resources is None:
        return {}
    amounts = _exact_amounts(spec.resources.requests)
    return {
        name: amount
        for name, amount in amounts.items()
        if name in _POD_LEVEL or name.startswith("hugepages-")
    }


_DEFAULTS: Mapping[str, int] = MappingProxyType(
    {CPU: DEFAULT_CPU_MILLI, MEMORY: DEFAULT_MEMORY_BYTES}
)


@lru_cache(maxsize=8192)
def _shared(amounts: tuple[tuple[str, int], ...], cpu_milli: int, memory_bytes: int) -> PodRequest:
    return PodRequest(_resources(dict(amounts)), cpu_milli, memory_bytes)


@lru_cache(maxsize=8192)
def _of_one_container(given: tuple[tuple[str, Scalar], ...]) -> PodRequest:
    amounts = _amounts(dict(given), REQUEST_MAX)
    return _shared(
        tuple(amounts.items()),
        amounts.get(CPU, DEFAULT_CPU_MILLI),
        amounts.get(MEMORY, DEFAULT_MEMORY_BYTES),
    )


def pod_request(spec: PodSpec) -> PodRequest:
    """What a pod of this spec needs. Pods with equal values mostly share one object.

    Raises:
        quantity.QuantityError: an amount is no quantity.
    """
    simple = not spec.init_containers and spec.resources is None and not spec.overhead
    if simple and len(spec.containers) == 1:
        return _of_one_container(tuple(spec.containers[0].resources.requests.items()))
    level = _pod_level(spec)
    real = _aggregate(spec.containers, spec.init_containers, {})
    real.update(level)
    if level:
        # With amounts for the whole pod, the default is for what neither level names.
        missing = {name: amount for name, amount in _DEFAULTS.items() if name not in real}
    else:
        missing = dict(_DEFAULTS)
    seen = _aggregate(spec.containers, spec.init_containers, missing)
    seen.update(level)
    overhead = _exact_amounts(spec.overhead)
    _add(real, overhead)
    _add(seen, overhead)
    whole = tuple((name, ceil(amount)) for name, amount in real.items())
    return _shared(whole, ceil(seen.get(CPU, 0)), ceil(seen.get(MEMORY, 0)))


def _reported(status: ContainerStatus | PodStatus | None) -> list[Mapping[str, Scalar]]:
    """The requests that a node has allocated and set, where it reports them."""
    if status is None:
        return []
    found = [status.allocated_resources, status.resources and status.resources.requests]
    return [requests for requests in found if requests]


def _largest(
    asked: Mapping[str, Scalar], reported: Sequence[Mapping[str, Scalar]], *, infeasible: bool
) -> Mapping[str, Scalar]:
    """The most of each resource; ``asked`` itself where that is what was asked for."""
    largest: dict[str, Scalar] = {} if infeasible else dict(asked)
    for requests in reported:
        for name, amount in requests.items():
            known = largest.get(name)
            if known is None or (
                amount != known and quantity.parse(amount) > quantity.parse(known)
            ):
                largest[name] = amount
    return asked if largest == asked else largest


def effective_spec(pod: Pod) -> PodSpec:
    """The pod's spec with the requests that its node must be charged with during a resize.

    Each request is the largest of what the spec asks for, what the node has allocated and what is
    in force; a resize that the node has found infeasible does not count (KEP-1287, and KEP-5419 for
    requests of the whole pod). The spec itself is returned where the status adds nothing.

    Raises:
        quantity.QuantityError: an amount is no quantity.
    """
    spec, status = pod.spec, pod.status
    if spec.resources is None and not any(
        item.allocated_resources or item.resources
        for item in (*status.container_statuses, *status.init_container_statuses)
    ):
        return spec  # nothing is reported, as of most pods
    pending = condition(pod, RESIZE_PENDING)
    infeasible = pending is not None and pending.reason == INFEASIBLE
    statuses = {
        item.name: item for item in (*status.container_statuses, *status.init_container_statuses)
    }

    def resized(containers: tuple[Container, ...]) -> tuple[Container, ...]:
        found = []
        for container in containers:
            asked = container.resources.requests
            reported = _reported(statuses.get(container.name))
            largest = _largest(asked, reported, infeasible=infeasible) if reported else asked
            if largest is not asked:
                given = msgspec.structs.replace(container.resources, requests=dict(largest))
                container = msgspec.structs.replace(container, resources=given)  # noqa: PLW2901  # the changed one takes its place
            found.append(container)
        return (
            containers if all(a is b for a, b in zip(found, containers, strict=True)) else (*found,)
        )

    changes: dict[str, object] = {}
    if statuses:
        for name in ("containers", "init_containers"):
            before = getattr(spec, name)
            if (after := resized(before)) is not before:
                changes[name] = after
    if spec.resources is not None and spec.resources.requests and (whole := _reported(status)):
        asked = spec.resources.requests
        largest = _largest(
            asked, [_less(item, spec.overhead) for item in whole], infeasible=infeasible
        )
        if largest is not asked:
            changes["resources"] = ResourceRequirements(dict(largest), spec.resources.limits)
    return msgspec.structs.replace(spec, **changes) if changes else spec


def _less(given: Mapping[str, Scalar], overhead: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
    """A pod's reported amounts include its overhead, its spec's do not."""
    return {
        name: quantity.format_decimal(quantity.parse(amount) - quantity.parse(overhead[name]))
        if name in overhead
        else amount
        for name, amount in given.items()
    }


_ASKING = ("containers", "initContainers", "resources", "overhead")


@lru_cache(maxsize=1024)
def _raw_request(asking: tuple[bytes, ...]) -> PodRequest:
    # Pods come by the thousand from one template: decoding it once is enough.
    spec = {
        name: msgspec.json.decode(body) for name, body in zip(_ASKING, asking, strict=True) if body
    }
    return spec_request(spec)


def spec_request(spec: Document) -> PodRequest:
    """``pod_request`` of a spec as it is stored, for those who have the document in hand.

    Args:
        spec: its members may be raw JSON (``msgspec.Raw``).

    Raises:
        quantity.QuantityError: an amount is no quantity.
    """
    if isinstance(spec.get("containers"), msgspec.Raw):
        return _raw_request(tuple([bytes(spec.get(name, b"")) for name in _ASKING]))
    containers: Sequence[Document] = spec.get("containers") or ()
    more = "initContainers" in spec or "resources" in spec or "overhead" in spec
    if len(containers) == 1 and not more:
        given: Mapping[str, Scalar] = (containers[0].get("resources") or _NONE).get(
            "requests"
        ) or _NONE
        return _of_one_container(tuple(given.items()))
    return pod_request(msgspec.convert(spec, PodSpec))


_STATUSES = ("containerStatuses", "initContainerStatuses")
_Amounts = tuple[tuple[str, Scalar], ...]
_Reported = tuple[tuple[str, _Amounts, _Amounts], ...]


def charged_request(spec: Document, status: Document | None) -> PodRequest:
    """``pod_request`` of the ``effective_spec`` of a pod as it is stored.

    Args:
        spec: its members may be raw JSON (``msgspec.Raw``).
        status: decoded; None for none.

    Raises:
        quantity.QuantityError: an amount is no quantity.
    """
    reported = _reported_in(status) if status else ()
    if not reported or status is None:
        return spec_request(spec)
    infeasible = any(
        item.get("type") == RESIZE_PENDING and item.get("reason") == INFEASIBLE
        for item in status.get("conditions") or ()
    )
    if isinstance(spec.get("containers"), msgspec.Raw):
        asking = tuple([bytes(spec.get(name, b"")) for name in _ASKING])
        return _charged_raw(asking, reported, infeasible)
    return _charged({name: spec[name] for name in _ASKING if name in spec}, reported, infeasible)


def _reported_in(status: Document) -> _Reported:
    return tuple(
        (
            item.get("name", ""),
            tuple((item.get("allocatedResources") or _NONE).items()),
            tuple(((item.get("resources") or _NONE).get("requests") or _NONE).items()),
        )
        for field in _STATUSES
        for item in status.get(field) or ()
        if item.get("allocatedResources") or item.get("resources")
    )


@lru_cache(maxsize=1024)
def _charged_raw(
    asking: tuple[bytes, ...],
    reported: _Reported,
    infeasible: bool,  # noqa: FBT001  a key of the cache
) -> PodRequest:
    spec = {
        name: msgspec.json.decode(body) for name, body in zip(_ASKING, asking, strict=True) if body
    }
    return _charged(spec, reported, infeasible)


def _charged(spec: Document, reported: _Reported, infeasible: bool) -> PodRequest:  # noqa: FBT001  as above
    statuses = [
        {
            "name": name,
            "allocatedResources": dict(allocated),
            "resources": {"requests": dict(actual)},
        }
        for name, allocated, actual in reported
    ]
    pending = [{"type": RESIZE_PENDING, "status": "True", "reason": INFEASIBLE}]
    status = {"containerStatuses": statuses, "conditions": pending if infeasible else []}
    return pod_request(effective_spec(msgspec.convert({"spec": spec, "status": status}, Pod)))
