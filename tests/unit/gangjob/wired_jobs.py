"""Jobs, and what the wiring makes of their pods."""

import json
from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any

from grange.api.meta import Document, OwnerReference
from grange.controllers.gangjob import frameworks
from grange.controllers.gangjob.adapter import JobLabels
from grange.controllers.gangjob.address_blocks import AddressBlocks
from grange.controllers.gangjob.job_context import JobContext
from grange.controllers.gangjob.job_names import gen_general_name
from grange.controllers.gangjob.model import JobModel, JobRole, ServiceMode
from grange.controllers.gangjob.peers import AddressedPeers, NamedPeers
from grange.controllers.gangjob.pod_template import JobPodDocument, pod_document

LABELS = JobLabels(
    operator=("grange.dev/job-operator", "gangjob"),
    job="grange.dev/job-name",
    role="grange.dev/replica-type",
    index="grange.dev/replica-index",
)
NETWORK = IPv4Network("127.5.0.0/17")
NO_SERVERS = frozenset({"ps", "server"})


def template(name: str = "main", *, meta: Document | None = None, **container: Any) -> Document:
    body = {"name": name, "image": "example/train", **container}
    return {"metadata": meta or {}, "spec": {"containers": [body]}}


def role(name: str, replicas: int = 1, **fields: Any) -> JobRole:
    fields.setdefault("template", template())
    fields.setdefault("completes", name.lower() not in NO_SERVERS)
    return JobRole(name=name, replicas=replicas, **fields)


def model(*roles: JobRole, framework: str = "Generic", **fields: Any) -> JobModel:
    fields.setdefault("services", ServiceMode.JOB if framework == "Generic" else ServiceMode.POD)
    return JobModel(
        kind="GangJob",
        namespace="team",
        name=fields.pop("name", "train"),
        uid=fields.pop("uid", "0b3c2b9e-uid"),
        roles=roles,
        framework=framework,
        **fields,
    )


def context(
    job: JobModel,
    *,
    blocks: AddressBlocks | None = None,
    domain: str = "",
    labels: JobLabels = LABELS,
) -> JobContext:
    """A job whose members are names, or addresses where blocks are given."""
    job = frameworks.completed(job)

    def pod_name(role_name: str, index: int) -> str:
        return gen_general_name(job.name, role_name, index)

    owner = OwnerReference(
        api_version="grange.dev/v1alpha1",
        kind=job.kind,
        name=job.name,
        uid=job.uid,
        controller=True,
        block_owner_deletion=True,
    )
    peers = (
        AddressedPeers(job, pod_name, blocks)
        if blocks is not None
        else NamedPeers(job, pod_name, domain=domain)
    )
    return JobContext(model=job, labels=labels, owner=owner, peers=peers)


def blocks() -> AddressBlocks:
    return AddressBlocks(NETWORK)


def pod(there: JobContext, role_name: str, index: int = 0, attempt: int = 0) -> JobPodDocument:
    return pod_document(there, role_name, index, attempt)


def env(there: JobContext, role_name: str, index: int = 0) -> dict[str, str]:
    """Variables with values of the first container."""
    items = pod(there, role_name, index).document["spec"]["containers"][0]["env"]
    return {item["name"]: item["value"] for item in items if "value" in item}


def own_env(there: JobContext, role_name: str, index: int = 0) -> dict[str, str]:
    """The same without those that every framework has."""
    found = env(there, role_name, index)
    return {key: value for key, value in found.items() if not key.startswith("GRANGE_")}


def tf_config(there: JobContext, role_name: str, index: int = 0) -> Any:
    return json.loads(env(there, role_name, index)["TF_CONFIG"])


def with_namespace(job: JobModel, namespace: str) -> JobModel:
    return replace(job, namespace=namespace)
