"""Names, keys and labels of what a job consists of."""

from collections.abc import Iterable

from grange.api.meta import ObjectKey, Resource
from grange.base.errors import GrangeError
from grange.controllers.gangjob.adapter import JobLabels
from grange.reconcile.expectations import Doubtful

POD_KEYS = "pods"
SERVICE_KEYS = "services"


class InvalidReplicaLabel(GrangeError):
    """A pod or Service does not state its role or its index; the message names the label."""


def gen_general_name(job_name: str, replica_type: str, index: int | str) -> str:
    """The name of a replica's pod, and of its Service: the same in every attempt.

    Args:
        job_name: of the job.
        replica_type: its role, in any case of letters.
        index: which one of the role.
    """
    return f"{job_name}-{replica_type.lower()}-{index}".replace("/", "-")


def gen_expectation_pods_key(job_key: ObjectKey | str, replica_type: str) -> str:
    """The text that stands for the expected pods of a role, in logs and explanations.

    Expectations themselves are kept by the UID of the job, so that a job that was deleted and
    created again under its name starts with none.
    """
    return f"{job_key}/{replica_type.lower()}/{POD_KEYS}"


def gen_expectation_services_key(job_key: ObjectKey | str, replica_type: str) -> str:
    """The text that stands for the expected Services of a role."""
    return f"{job_key}/{replica_type.lower()}/{SERVICE_KEYS}"


def unsatisfied_keys(job_key: ObjectKey, writes: Iterable[Doubtful]) -> tuple[str, ...]:
    """The expectation keys that writes belong to, each once, in their order.

    The role is taken from the name; an object that was adopted under another name has the key of
    its kind.
    """
    make = {POD_KEYS: gen_expectation_pods_key, SERVICE_KEYS: gen_expectation_services_key}
    found: dict[str, None] = {}
    for write in writes:
        role, _, index = write.name.removeprefix(f"{job_key.name}-").rpartition("-")
        known = role and index.isdecimal() and write.name.startswith(f"{job_key.name}-")
        found[make[write.kind](job_key, role) if known else f"{job_key}/{write.kind}"] = None
    return tuple(found)


def gen_labels(labels: JobLabels, job_name: str) -> dict[str, str]:
    """The labels that all pods and Services of a job have, and by which they are selected."""
    key, value = labels.operator
    return {key: value, labels.job: job_name.replace("/", "-")}


def gen_replica_labels(
    labels: JobLabels, job_name: str, replica_type: str, index: int
) -> dict[str, str]:
    """The labels of one replica's pod and Service; by them its Service selects the pod."""
    return {
        **gen_labels(labels, job_name),
        labels.role: replica_type.lower(),
        labels.index: str(index),
    }


def role_selector(labels: JobLabels, job_name: str, replica_type: str) -> str:
    """The label selector of a role's pods, as text."""
    found = {**gen_labels(labels, job_name), labels.role: replica_type.lower()}
    return ",".join(f"{key}={value}" for key, value in found.items() if key)


def replica_type(labels: JobLabels, obj: Resource) -> str:
    """The role that an object states.

    Raises:
        InvalidReplicaLabel: it has no such label.
    """
    value = obj.metadata.labels.get(labels.role)
    if value is None:
        raise InvalidReplicaLabel(f"metadata.labels[{labels.role}] of {obj.key}: is missing")
    return value


def replica_index(labels: JobLabels, obj: Resource) -> int:
    """The index that an object states.

    Raises:
        InvalidReplicaLabel: it has no such label, or one that is not a decimal number.
    """
    value = obj.metadata.labels.get(labels.index)
    if value is None:
        raise InvalidReplicaLabel(f"metadata.labels[{labels.index}] of {obj.key}: is missing")
    if not (value.isascii() and value.isdecimal()):
        raise InvalidReplicaLabel(
            f"metadata.labels[{labels.index}] of {obj.key}: {value!r} is not a decimal number"
        )
    return int(value)
