"""TensorFlow: ``TF_CONFIG``, the cluster and the member's task in it."""

from collections.abc import Iterable

import msgspec

from grange.controllers.gangjob.frameworks.framework import (
    Framework,
    JobMember,
    PodAdditions,
    declared_port,
)
from grange.controllers.gangjob.model import JobModel, JobRole
from grange.controllers.gangjob.peers import capacity

_LEADERS = frozenset({"chief", "master"})
_SERVER, _WORKER = "ps", "worker"
_CLUSTER = "cluster"


def _wire(member: JobMember) -> PodAdditions:
    """A job of one replica is no cluster: its program runs as it does without one."""
    if sum(role.replicas for role in member.model.roles) == 1 and not _is_elastic(member.model):
        return PodAdditions()
    task = {"type": member.role.name.lower(), "index": member.index}
    config: dict[str, object]
    if member.model.wiring.sparse:
        config = {_CLUSTER: _sparse_cluster(member), "task": task}
    else:
        config = {_CLUSTER: _cluster(member), "task": task, "environment": "cloud"}
    return PodAdditions(env={"TF_CONFIG": msgspec.json.encode(config).decode()})


def _is_elastic(model: JobModel) -> bool:
    return any(capacity(role) != role.replicas for role in model.roles)


def _hosts(member: JobMember, role: JobRole, indexes: Iterable[int]) -> list[str]:
    declared = declared_port(member.model, role, FRAMEWORK.port_name)
    peers, name = member.peers, role.name
    return [
        f"{peers.host(name, index)}:{peers.port(name, index, declared, FRAMEWORK.port)}"
        for index in indexes
    ]


def _cluster(member: JobMember) -> msgspec.Raw:
    """All members, the same for all: encoding it for each would cost the square of the job."""
    found = member.encoded.get(_CLUSTER)
    if found is None:
        roles = sorted(member.model.roles, key=lambda role: role.name.lower())
        hosts = {
            role.name.lower(): _hosts(member, role, range(role.replicas))
            for role in roles
            if role.replicas
        }
        found = member.encoded[_CLUSTER] = msgspec.json.encode(hosts)
    return msgspec.Raw(found)


def _sparse_cluster(member: JobMember) -> dict[str, object]:
    """What stays true while workers come and go: a worker knows itself and the servers, a server itself."""
    role = member.role
    own = {str(member.index): _hosts(member, role, [member.index])[0]}
    if role.name.lower() == _SERVER:
        return {_SERVER: own}
    servers = member.model.role(_SERVER)
    if servers is None:
        return {role.name.lower(): own}
    known = _hosts(member, servers, range(servers.replicas))
    return {_SERVER: known, role.name.lower(): own}


def _is_leader(model: JobModel, role: JobRole, index: int) -> bool:
    """The chief or master; in a job without one the first worker."""
    if any(item.name.lower() in _LEADERS or item.leader for item in model.roles):
        return role.leader or role.name.lower() in _LEADERS
    return role.name.lower() == _WORKER and index == 0


FRAMEWORK = Framework("TensorFlow", _wire, "tfjob-port", 2222, is_leader=_is_leader)
