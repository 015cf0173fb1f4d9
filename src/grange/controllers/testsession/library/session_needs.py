"""What a session needs to run, and what there is for it. Pure."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping

from grange.api import codec, names
from grange.api.kinds.machinelease import MACHINE_LEASE, pool_of
from grange.api.kinds.node import Node
from grange.api.kinds.testsession import TestSession, components
from grange.api.validation.testsessions import check
from grange.controllers.testsession.library.library_errors import InvalidSessionError
from grange.placement.machine_pools import Pool, is_usable


def check_session(session: TestSession) -> None:
    """Apply the rules of the kind TestSession, which no API server applies here.

    Raises:
        InvalidSessionError: the session breaks some; all of them are named.
    """
    fault = names.check_dns_1035_label(session.metadata.name)
    if fault is not None:
        raise InvalidSessionError(f'metadata.name: "{session.metadata.name}" is invalid: {fault}')
    causes = check(codec.to_document(session), None)
    if causes:
        raise InvalidSessionError("; ".join(f"{item.field}: {item.message}" for item in causes))


def needed_machines(session: TestSession, default_pools: Mapping[str, str]) -> dict[str, int]:
    """The machines that a session needs, by pool: one for each pod.

    Args:
        session: which.
        default_pools: by role, for components that name no pool.

    Raises:
        InvalidSessionError: a component has no pool.
    """
    need: dict[str, int] = {}
    for role, name, component in components(session.spec):
        pool = component.pool or default_pools.get(role, "")
        if not pool:
            raise InvalidSessionError(
                f"component {name}: has no pool, and role {role} has no default; "
                "set its pool or ControllerOptions.default_pools"
            )
        need[pool] = need.get(pool, 0) + component.count
    return need


def current_pools(
    nodes: Iterable[Node], in_use: Mapping[str, int], occupied: Container[str] = ()
) -> dict[str, Pool]:
    """The pools of a controller, by name.

    Machines that take no pods now, or that have a lease, are not free. They count for the capacity
    all the same, because they may become free again: a session that needs them waits.

    Args:
        nodes: all of the cluster.
        in_use: machines that the controller's sessions have, by pool.
        occupied: names of nodes that have pods of these sessions; one that was cordoned since then
            is in use and takes nothing from the machines that are free.
    """
    capacity: Counter[str] = Counter()
    free: Counter[str] = Counter()
    for node in nodes:
        if pool := pool_of(node):
            capacity[pool] += 1
            can_be_free = is_usable(node) and MACHINE_LEASE not in node.metadata.labels
            free[pool] += can_be_free or node.metadata.name in occupied
    return {
        name: Pool(name, max(0, free[name] - in_use.get(name, 0)), count)
        for name, count in capacity.items()
    }


def machines_text(need: Mapping[str, int]) -> str:
    """The machines, for people: ``1 of pool drivers, 2 of pool workers``."""
    return ", ".join(f"{count} of pool {pool}" for pool, count in need.items())
