"""Pods and Services of a role by index, and which of several for one index is kept."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from grange.api.meta import Resource
from grange.base.log import Logger
from grange.controllers.gangjob.adapter import JobLabels
from grange.controllers.gangjob.job_names import InvalidReplicaLabel, replica_index

R = TypeVar("R", bound=Resource)

OVERFLOW_LIMIT = 10_000
"""An index so far beyond the replicas is malformed: one label must not make a list of millions."""


def filter_for_replica_type(labels: JobLabels, objects: Iterable[R], replica_type: str) -> list[R]:
    """The objects of a role, in their order."""
    role = replica_type.lower()
    return [obj for obj in objects if obj.metadata.labels.get(labels.role) == role]


def replica_slices(
    labels: JobLabels,
    objects: Iterable[R],
    replicas: int,
    log: Logger,
    *,
    overflow: bool = True,
) -> list[list[R]]:
    """The objects by index: several of one index, and those being deleted, share a slice.

    Args:
        labels: which label is the index.
        objects: of one role.
        replicas: how many slices there are at least.
        log: where objects without a usable index are reported; they are in no slice.
        overflow: whether there are slices for the indexes from ``replicas`` on, too.
    """
    slices: list[list[R]] = [[] for _ in range(max(0, replicas))]
    most = replicas + OVERFLOW_LIMIT if overflow else replicas
    for obj in objects:
        try:
            index = replica_index(labels, obj)
        except InvalidReplicaLabel as error:
            log.warning("replica ignored", error=error)
            continue
        if index >= most:
            log.warning("replica ignored: index out of range", key=str(obj.key), index=index)
            continue
        while len(slices) <= index:
            slices.append([])
        slices[index].append(obj)
    return slices


def best_replica(objects: Sequence[R], is_ready: Callable[[R], bool]) -> R:
    """The one to keep of several for one index: not being deleted, then ready, then oldest."""
    return min(
        objects,
        key=lambda obj: (
            bool(obj.metadata.deletion_timestamp),
            not is_ready(obj),
            obj.metadata.creation_timestamp or "",
            obj.metadata.uid,
        ),
    )
