"""PyTorch: the master and ranks of ``torch.distributed``, and what torchrun reads (``PET_*``)."""

from grange.api.meta import Document
from grange.controllers.gangjob.frameworks.framework import (
    Framework,
    JobMember,
    PodAdditions,
    framework_container,
    member_port,
    processes,
    rank,
    ranked,
)
from grange.controllers.gangjob.model import JobModel, JobRole, Rendezvous
from grange.controllers.gangjob.peers import capacity

_MASTER = "master"
_C10D = "c10d"
_TRIES, _PAUSE_S = 100, 2


def _wire(member: JobMember) -> PodAdditions:
    model = member.model
    if not member.role.completes:
        return PodAdditions()
    rendezvous = _rendezvous(model)
    env = {"PYTHONUNBUFFERED": "1"}
    if model.wiring.processes_per_node:
        env["PET_NPROC_PER_NODE"] = model.wiring.processes_per_node
    if not member.peers.resolvable:  # else gloo looks up the machine's name for its address
        env |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo"}
    waits: tuple[Document, ...] = ()
    if rendezvous is None or model.role(_MASTER) is not None:
        env |= _fixed(member)
        waits = _wait_for_master(member)
    if rendezvous is not None:
        env |= _elastic(member, rendezvous)
    return PodAdditions(env=env, init_containers=waits)


def _rendezvous(model: JobModel) -> Rendezvous | None:
    """The rendezvous of an elastic job; one with an elastic role has torchrun's own."""
    if model.wiring.rendezvous is not None:
        return model.wiring.rendezvous
    return Rendezvous() if any(_is_elastic(role) for role in ranked(model)) else None


def _is_elastic(role: JobRole) -> bool:
    return role.min_replicas is not None or role.max_replicas is not None


def _fixed(member: JobMember) -> dict[str, str]:
    roles = ranked(member.model)
    nodes = sum(role.replicas for role in roles)
    host = member.peers.short_host(roles[0].name, 0)
    port = str(member_port(FRAMEWORK, member, roles[0], 0))
    number = str(rank(member.model, member.role, member.index))
    return {
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "WORLD_SIZE": str(nodes * processes(member.model)),
        "RANK": number,
        "PET_MASTER_ADDR": host,
        "PET_MASTER_PORT": port,
        "PET_NNODES": str(nodes),
        "PET_NODE_RANK": number,
    }


def _elastic(member: JobMember, rendezvous: Rendezvous) -> dict[str, str]:
    roles = ranked(member.model)
    worker = next((role for role in roles if role.name.lower() != _MASTER), roles[0])
    lowest = sum(
        role.replicas if role.min_replicas is None else role.min_replicas for role in roles
    )
    env = {
        "PET_RDZV_BACKEND": rendezvous.backend or _C10D,
        "PET_NNODES": f"{lowest}:{sum(map(capacity, roles))}",
        "PET_RDZV_ID": rendezvous.identifier or member.model.name,
    }
    if rendezvous.standalone:
        env["PET_STANDALONE"] = ""
    host = rendezvous.host or member.peers.short_host(worker.name, 0)
    port = rendezvous.port or member_port(FRAMEWORK, member, worker, 0)
    env["PET_RDZV_ENDPOINT"] = f"{host}:{port}"
    options = dict(rendezvous.options)
    if not member.peers.resolvable and env["PET_RDZV_BACKEND"] == _C10D and not rendezvous.host:
        # Every loopback address is the reader's own machine, so torchrun cannot find out which member serves.
        first = member.role.name == worker.name and member.index == 0
        options.setdefault("is_host", str(first).lower())
    if options:
        env["PET_RDZV_CONF"] = ",".join(f"{key}={value}" for key, value in options.items())
    if rendezvous.max_restarts is not None:
        env["PET_MAX_RESTARTS"] = str(rendezvous.max_restarts)
    return env


def _wait_for_master(member: JobMember) -> tuple[Document, ...]:
    """Lets the others start when the master's name resolves; in the image that is there anyway."""
    roles = ranked(member.model)
    if not member.peers.resolvable or rank(member.model, member.role, member.index) == 0:
        return ()
    host = member.peers.short_host(roles[0].name, 0)
    container = framework_container(member.model, member.role)
    script = (
        f"for try in $(seq {_TRIES}); do getent hosts {host} && exit 0; sleep {_PAUSE_S}; done; "
        f"echo '{host} does not resolve' >&2; exit 1"
    )
    amounts = {"cpu": "50m", "memory": "16Mi"}
    waiting: Document = {
        "name": "wait-for-master",
        "image": container.get("image", ""),
        "command": ["sh", "-c", script],
        "resources": {"requests": amounts, "limits": amounts},
    }
    alike = ("imagePullPolicy", "securityContext")  # namespaces may refuse a pod without them
    waiting.update((key, container[key]) for key in alike if container.get(key))
    return (waiting,)


FRAMEWORK = Framework("PyTorch", _wire, "pytorchjob-port", 23456)
