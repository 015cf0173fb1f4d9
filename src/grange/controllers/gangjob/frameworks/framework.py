"""What a framework's plugin gets and what it gives. Pure: nothing here reads or writes the API."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from grange.api.meta import Document
from grange.controllers.gangjob.errors import InvalidJob
from grange.controllers.gangjob.model import JobModel, JobRole
from grange.controllers.gangjob.peers import Peers

FILES_VOLUME = "grange-job-files"


@dataclass(frozen=True, slots=True)
class JobMember:
    """One pod to be wired.

    Attributes:
        model: its job.
        role: of the pod.
        index: of the pod.
        peers: where the members are.
        attempt: of the pod.
        files: name of the ConfigMap with the files of the job.
        encoded: what a plugin encodes once for all members of the job, by name.
    """

    model: JobModel
    role: JobRole
    index: int
    peers: Peers
    attempt: int = 0
    files: str = ""
    encoded: dict[str, bytes] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class PodAdditions:
    """What a plugin adds to a pod. A variable that the template sets itself is left alone.

    Attributes:
        env: variables of the framework's container.
        env_keys: variables of that container whose values are keys of the job's files.
        directory: in that container, where files of the job appear; empty: nowhere.
        files: keys of the job's files that appear in it.
        init_containers: run before those of the template.
        command: of the framework's container where the template has none.
        wrapper: precedes the command of the framework's container.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    env_keys: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""
    files: tuple[str, ...] = ()
    init_containers: tuple[Document, ...] = ()
    command: tuple[str, ...] = ()
    wrapper: tuple[str, ...] = ()


Running = frozenset[tuple[str, int]]
"""Role in lower case and index of the pods that run."""


def _no_files(model: JobModel, peers: Peers, running: Running) -> dict[str, str]:
    return {}


def _led_by_role(model: JobModel, role: JobRole, index: int) -> bool:
    return role.leader


def _unchanged(model: JobModel) -> JobModel:
    return model


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework: one module exports one of these as ``FRAMEWORK``.

    Attributes:
        name: as ``spec.framework`` has it.
        wire: what is added to a pod.
        port_name: of the port that members reach each other by; empty: there is none.
        port: its number where the template has none of that name.
        files: content of the job's ConfigMap by key; empty: it has none.
        is_leader: whether a member has the label of the leader.
        complete: fills in what users of the framework leave out of their roles.
    """

    name: str
    wire: Callable[[JobMember], PodAdditions]
    port_name: str = ""
    port: int = 0
    files: Callable[[JobModel, Peers, Running], dict[str, str]] = _no_files
    is_leader: Callable[[JobModel, JobRole, int], bool] = _led_by_role
    complete: Callable[[JobModel], JobModel] = _unchanged


def framework_container(model: JobModel, role: JobRole) -> Document:
    """The container of a role's template that the framework runs in.

    Raises:
        InvalidJob: the template has no containers, or none of that name.
    """
    containers = (role.template.get("spec") or {}).get("containers") or []
    at = f"spec.replicaSpecs[{role.name}].template.spec.containers"
    if not containers:
        raise InvalidJob(f"{at}: required; give the template a container")
    if not role.container:
        return dict(containers[0])
    for item in containers:
        if item.get("name") == role.container:
            return dict(item)
    names = ", ".join(str(item.get("name")) for item in containers)
    raise InvalidJob(
        f"{at}: there is no container {role.container}, in which {model.kind} runs its program; "
        f"name one of {names} so"
    )


def declared_port(model: JobModel, role: JobRole, name: str) -> int:
    """The number of a named port of the framework's container.

    Raises:
        InvalidJob: the container has no port of that name.
    """
    container = framework_container(model, role)
    for item in container.get("ports") or []:
        if item.get("name") == name:
            return int(item["containerPort"])
    raise InvalidJob(
        f"spec.replicaSpecs[{role.name}].template.spec.containers[{container.get('name')}].ports: "
        f"there is no port {name}, by which the members reach each other; add it"
    )


def with_port(model: JobModel, name: str, number: int) -> JobModel:
    """The model whose framework containers all have the named port.

    Raises:
        InvalidJob: a template lacks the framework's container.
    """
    return replace(model, roles=tuple(_role_with_port(model, r, name, number) for r in model.roles))


def _role_with_port(model: JobModel, role: JobRole, name: str, number: int) -> JobRole:
    container = framework_container(model, role)
    ports = container.get("ports") or []
    if any(item.get("name") == name for item in ports):
        return role
    added = {**container, "ports": [*ports, {"name": name, "containerPort": number}]}
    spec = role.template["spec"]
    containers = [
        added if item.get("name") == container.get("name") else item for item in spec["containers"]
    ]
    return replace(role, template={**role.template, "spec": {**spec, "containers": containers}})


def member_port(framework: Framework, member: JobMember, role: JobRole, index: int) -> int:
    """The port that another member of the job listens on.

    Raises:
        InvalidJob: its container has no port of the framework's name.
    """
    declared = declared_port(member.model, role, framework.port_name)
    return member.peers.port(role.name, index, declared, framework.port)


def ranked(model: JobModel) -> tuple[JobRole, ...]:
    """The roles whose pods have ranks, the leading one first; servers have none."""
    members = [role for role in model.roles if role.completes]
    leading = [role for role in members if role.name.lower() == "master" or role.leader][:1]
    return (*leading, *(role for role in members if role not in leading))


def rank(model: JobModel, role: JobRole, index: int) -> int:
    """The number of a member among all that have ranks; those of the leading role come first."""
    before = 0
    for item in ranked(model):
        if item.name == role.name:
            return before + index
        before += item.replicas
    raise InvalidJob(f"spec.replicaSpecs[{role.name}]: its pods have no ranks; set completes: true")


def processes(model: JobModel) -> int:
    """How many processes a pod has; values that are no number (``auto``) count as one."""
    text = model.wiring.processes_per_node
    return int(text) if text.isdecimal() and int(text) > 0 else 1
