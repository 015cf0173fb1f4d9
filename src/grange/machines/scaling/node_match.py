"""Which node is a machine's: the one of its name or, where a cluster names nodes itself, of its instance."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from grange.api.kinds.machine import NODE_POOL_LABEL, Machine
from grange.api.kinds.node import Node


def instance_of(node: Node) -> str:
    """Id of the instance that a node names, e.g. that of ``aws:///ZONE/i-1``; empty for none."""
    return node.spec.provider_id.rpartition("/")[2]


def is_of(node: Node, machine: Machine) -> bool:
    """Whether a node is the machine's own, and not another one of its name.

    Where both name an instance, that decides. A node with the label of a pool must be of the machine's.
    """
    if node.metadata.labels.get(NODE_POOL_LABEL, machine.spec.pool) != machine.spec.pool:
        return False
    provided, instance = instance_of(node), machine.status.instance_id
    if provided and instance:
        return provided == instance
    return node.metadata.name == machine.node


def own_node(
    machine: Machine,
    named: Node | None,
    of_instance: Sequence[Node],
    is_machine: Callable[[str], bool],
) -> Node | None:
    """The node of a machine; one of its name that is not its own if there is no other.

    Args:
        machine: its record.
        named: the node of the name that it has or is expected to have.
        of_instance: nodes that name its instance.
        is_machine: whether there is a machine of a name: a node with the name of one is never another's.
    """
    if named is not None and is_of(named, machine):
        return named
    own = (one for one in of_instance if not is_machine(one.metadata.name))
    found = min(own, key=lambda one: one.metadata.name, default=None)
    return found if found is not None and is_of(found, machine) else named


def nodes_of(machines: Iterable[Machine], nodes: Iterable[Node]) -> Mapping[str, Node]:
    """The node of each machine that has one, by the name of the machine."""
    records = {machine.metadata.name: machine for machine in machines}
    by_name = {node.metadata.name: node for node in nodes}
    by_instance: dict[str, list[Node]] = {}
    for node in by_name.values():
        if instance := instance_of(node):
            by_instance.setdefault(instance, []).append(node)
    found: dict[str, Node] = {}
    for name, machine in records.items():
        there = by_instance.get(machine.status.instance_id, ())
        own = own_node(machine, by_name.get(machine.node), there, records.__contains__)
        if own is not None:
            found[name] = own
    return found
