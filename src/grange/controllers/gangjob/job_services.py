"""The headless Services of a job, by which its pods have names, and the ConfigMap with its files."""

from grange.api import names
from grange.api.meta import Document
from grange.controllers.gangjob.errors import InvalidJob
from grange.controllers.gangjob.frameworks import framework_of
from grange.controllers.gangjob.frameworks.framework import Running, framework_container
from grange.controllers.gangjob.job_context import JobContext
from grange.controllers.gangjob.job_names import gen_labels, gen_replica_labels
from grange.controllers.gangjob.model import JobModel, JobRole, ServiceMode
from grange.reconcile.control import from_template

_NO_PODS: Running = frozenset()


def service_document(context: JobContext, name: str) -> Document:
    """The Service of a name: the job's own, or the one of the pod of that name.

    Raises:
        InvalidJob: no Service of the job has this name, or a template lacks its framework's container.
    """
    model, labels = context.model, context.labels
    if model.services is ServiceMode.JOB and name == model.name:
        selector = gen_labels(labels, model.name)
        return _service(context, name, selector, _ports_of_job(context))
    if model.services is ServiceMode.POD and (member := _member(context, name)) is not None:
        role, index = member
        selector = gen_replica_labels(labels, model.name, role.name, index)
        return _service(context, name, selector, _ports(context, role, index))
    raise InvalidJob(
        f"Service {model.namespace}/{name}: is none of job {model.name}; do not create it"
    )


def _member(context: JobContext, name: str) -> tuple[JobRole, int] | None:
    digits = name.rpartition("-")[2]
    if digits.isascii() and digits.isdecimal():
        for role in context.model.roles:
            if context.peers.pod(role.name, int(digits)) == name:
                return role, int(digits)
    return None


def _ports(context: JobContext, role: JobRole, index: int) -> list[Document]:
    """All ports of the framework's container, its own one as the member has it."""
    framework = framework_of(context.model)
    found = []
    for item in framework_container(context.model, role).get("ports") or []:
        number = int(item["containerPort"])
        if framework.port_name and item.get("name") == framework.port_name:
            number = context.peers.port(role.name, index, number, framework.port)
        protocol = str(item.get("protocol") or "TCP")
        port_name = str(item.get("name") or f"{protocol.lower()}-{number}")
        found.append({"name": port_name, "port": number, "protocol": protocol})
    return found


def _ports_of_job(context: JobContext) -> list[Document]:
    """The ports of all roles; of those with one name or one number the first.

    A headless Service leads to the pods themselves: ports in it are for those who look there.
    """
    found: list[Document] = []
    for role in context.model.roles:
        for item in _ports(context, role, 0):
            same = (
                item["name"] == other["name"]
                or (item["port"], item["protocol"]) == (other["port"], other["protocol"])
                for other in found
            )
            if not any(same):
                found.append(item)
    return found


def _service(
    context: JobContext, name: str, selector: dict[str, str], ports: list[Document]
) -> Document:
    document = from_template(
        {"metadata": {"labels": selector}},
        name=name,
        namespace=context.model.namespace,
        owner=context.owner,
    )
    spec: Document = {
        "clusterIP": "None",
        "selector": selector,
        "publishNotReadyAddresses": True,
    }
    if ports:
        spec["ports"] = ports
    return {"apiVersion": "v1", "kind": "Service", **document, "spec": spec}


def files_name(model: JobModel) -> str:
    """The name of the ConfigMap with a job's files.

    Another for a job of the same name: pods of the former one may still start and read theirs.
    """
    return names.shortened(model.name, names.digest(model.uid))


def files_document(context: JobContext, running: Running = _NO_PODS) -> Document | None:
    """The ConfigMap with a job's files; None where its framework has none.

    Args:
        context: of the job.
        running: the pods that run, for lists of those that can be reached now.
    """
    model = context.model
    data = framework_of(model).files(model, context.peers, running)
    if not data:
        return None
    document = from_template(
        {"metadata": {"labels": gen_labels(context.labels, model.name)}},
        name=files_name(model),
        namespace=model.namespace,
        owner=context.owner,
    )
    return {"apiVersion": "v1", "kind": "ConfigMap", **document, "data": data}
