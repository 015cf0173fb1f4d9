"""JAX: the coordinator's address and the number of the process."""

from grange.controllers.gangjob.errors import InvalidJob
from grange.controllers.gangjob.frameworks.framework import (
    Framework,
    JobMember,
    PodAdditions,
    member_port,
    rank,
    ranked,
)


def _wire(member: JobMember) -> PodAdditions:
    """The variables, also those that ``jax.distributed.initialize()`` reads without arguments.

    Raises:
        InvalidJob: the index is none of the role's, or a container lacks the port.
    """
    model, role = member.model, member.role
    if not role.completes:
        return PodAdditions()
    if not 0 <= member.index < role.replicas:
        raise InvalidJob(
            f"spec.replicaSpecs[{role.name}].replicas: index {member.index} is none of the "
            f"{role.replicas} processes; JAX has a fixed number of them"
        )
    roles = ranked(model)
    host = member.peers.short_host(roles[0].name, 0)
    port = member_port(FRAMEWORK, member, roles[0], 0)
    count = str(sum(item.replicas for item in roles))
    number = str(rank(model, role, member.index))
    return PodAdditions(
        env={
            "PYTHONUNBUFFERED": "1",
            "COORDINATOR_ADDRESS": host,
            "COORDINATOR_PORT": str(port),
            "NUM_PROCESSES": count,
            "PROCESS_ID": number,
            "JAX_COORDINATOR_ADDRESS": f"{host}:{port}",
            "JAX_NUM_PROCESSES": count,
            "JAX_PROCESS_ID": number,
        }
    )


FRAMEWORK = Framework("JAX", _wire, "jaxjob-port", 6666)
