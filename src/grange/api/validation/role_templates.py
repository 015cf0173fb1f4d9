"""Rules of the roles of a job: how many pods, their names, and their templates."""

from grange.api import names
from grange.api.meta import Document
from grange.api.validation.causes import Faults
from grange.api.validation.metadata import check_annotations, check_labels
from grange.api.validation.podspec import check_pod_spec

REPLICAS_MAX = 100_000
"""Pods that a role may have, and all roles of a job together."""


def check_pod_name(job: str, role: str, replicas: int, faults: Faults) -> None:
    """The name of the pod with the largest index is one that a Service or host may have."""
    largest = names.job_pod_name(job, role, max(replicas, 1) - 1)
    fault = names.check_dns_1035_label(largest)
    if not job or fault is None:
        return
    if len(largest) > names.DNS_LABEL_MAX:
        excess = len(largest) - names.DNS_LABEL_MAX
        fault = (
            f'the pod "{largest}" would have a name of {len(largest)} characters, and a name of a '
            f"host has {names.DNS_LABEL_MAX} at most; shorten the name by {excess}"
        )
    faults.invalid("metadata.name", job, fault)


def check_replicas(replicas: int, path: str, faults: Faults) -> bool:
    """A number of pods; whether it is one."""
    if 0 <= replicas <= REPLICAS_MAX:
        return True
    faults.invalid(path, replicas, f"must be between 0 and {REPLICAS_MAX}, inclusive")
    return False


def check_total(total: int, path: str, faults: Faults) -> None:
    """The number of pods of all roles together."""
    if total > REPLICAS_MAX:
        faults.invalid(path, total, f"a job may have {REPLICAS_MAX} pods in all roles together")


def check_template(template: Document, path: str, faults: Faults) -> None:
    """A template of pods; its own name and other identity have no meaning and are accepted."""
    meta = template.get("metadata") or {}
    if labels := meta.get("labels"):
        check_labels(labels, f"{path}.metadata.labels", faults)
    if annotations := meta.get("annotations"):
        check_annotations(annotations, f"{path}.metadata.annotations", faults)
    spec = template.get("spec")
    if spec is None:
        faults.required(f"{path}.spec", "specify what the pods run")
        return
    check_pod_spec(spec, f"{path}.spec", faults)
