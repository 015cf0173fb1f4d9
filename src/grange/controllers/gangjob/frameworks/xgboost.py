"""XGBoost and LightGBM: master, ranks, and the addresses of all workers."""

from grange.controllers.gangjob.frameworks.framework import (
    Framework,
    JobMember,
    PodAdditions,
    member_port,
    rank,
    ranked,
)


def _wire(member: JobMember) -> PodAdditions:
    model, role, peers = member.model, member.role, member.peers
    if not role.completes:
        return PodAdditions()
    roles = ranked(model)
    total = sum(item.replicas for item in roles)
    env = {
        "PYTHONUNBUFFERED": "1",
        "MASTER_ADDR": peers.short_host(roles[0].name, 0),
        "MASTER_PORT": str(member_port(FRAMEWORK, member, roles[0], 0)),
        "WORLD_SIZE": str(total),
        "RANK": str(rank(model, role, member.index)),
    }
    if total > 1:
        workers = roles[1:] or roles
        env["WORKER_PORT"] = str(_worker_port(member))
        env["WORKER_ADDRS"] = ",".join(
            peers.short_host(item.name, index) for item in workers for index in range(item.replicas)
        )
    return PodAdditions(env=env)


def _worker_port(member: JobMember) -> int:
    """One port for all workers: every one of them has its own address to bind it on."""
    workers = ranked(member.model)[1:] or ranked(member.model)
    return member_port(FRAMEWORK, member, workers[0], 0)


FRAMEWORK = Framework("XGBoost", _wire, "xgboostjob-port", 9999)
