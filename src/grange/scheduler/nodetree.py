"""Node names by zone, so that any walk over them alternates between zones."""

from grange.api.kinds.node import Node
from grange.scheduler.errors import CacheError, SnapshotInconsistent

_REGION_KEYS = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")
_ZONE_KEYS = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")


def zone_of(node: Node) -> str:
    """The node's zone: region and zone labels together; empty without either.

    The separator contains NUL, which no label can, so a region alone never looks like a zone.
    """
    labels = node.metadata.labels
    region = labels.get(_REGION_KEYS[0]) or labels.get(_REGION_KEYS[1]) or ""
    zone = labels.get(_ZONE_KEYS[0]) or labels.get(_ZONE_KEYS[1]) or ""
    return f"{region}:\0:{zone}" if region or zone else ""


class NodeTree:
    """Zones in the order of their first node, names in the order of their arrival.

    Attributes:
        version: grows with every change of the order that ``list`` gives.
    """

    def __init__(self) -> None:
        self._zones: dict[str, list[str]] = {}
        self._zone_of: dict[str, str] = {}
        self.version = 0
        self._turn = 0
        self._taken: dict[str, int] = {}
        self._exhausted: set[str] = set()

    @property
    def num_nodes(self) -> int:
        """How many nodes the tree holds."""
        return len(self._zone_of)

    def __contains__(self, name: str) -> bool:
        return name in self._zone_of

    @property
    def zones(self) -> list[str]:
        """The zones in their order."""
        return [*self._zones]

    def add_node(self, node: Node) -> None:
        """Make sure that the node is in its current zone; one that is there already stays put."""
        name, zone = node.metadata.name, zone_of(node)
        have = self._zone_of.get(name)
        if have == zone:
            return
        if have is not None:
            self._take_out(name)
        self._zones.setdefault(zone, []).append(name)
        self._zone_of[name] = zone
        self.version += 1

    def update_node(self, old: Node | None, new: Node) -> None:
        """The node changed: in a new zone it goes to the end of it; unknown, it is added.

        The tree remembers where it put the node, so ``old`` may be None, or out of date.
        """
        if old is not None and old.metadata.name != new.metadata.name:
            raise CacheError(f"node {old.metadata.name} cannot become {new.metadata.name}")
        self.add_node(new)

    def remove_node(self, node: Node) -> None:
        """Take the node out.

        Raises:
            CacheError: it is not in the tree.
        """
        if node.metadata.name not in self._zone_of:
            raise CacheError(f"node {node.metadata.name} is not in the node tree")
        self._take_out(node.metadata.name)
        self.version += 1

    def _take_out(self, name: str) -> None:
        zone = self._zone_of.pop(name)
        names = self._zones[zone]
        names.remove(name)
        if not names:
            del self._zones[zone]
            self._taken.pop(zone, None)
            self._exhausted.discard(zone)

    def list(self) -> "list[str]":
        """All names, one of each zone in turn; a function of the tree and nothing else.

        Raises:
            SnapshotInconsistent: zones and index disagree, which is a bug.
        """
        columns = [*self._zones.values()]
        names = [
            names[at]
            for at in range(max((len(names) for names in columns), default=0))
            for names in columns
            if at < len(names)
        ]
        if len(names) != len(self._zone_of):
            raise SnapshotInconsistent(
                f"the node tree lists {len(names)} nodes and has {len(self._zone_of)}"
            )
        return names

    def next(self) -> str:
        """The next name of an endless walk that alternates between zones; empty without nodes.

        As many calls as there are nodes, from the start of a round, give each once. A node that
        joins a zone that is used up is still given in the same round.
        """
        while self._zones:
            zones = [*self._zones]
            if self._turn >= len(zones):
                self._turn = 0
            zone = zones[self._turn]
            self._turn += 1
            at = self._taken.get(zone, 0)
            if at < len(self._zones[zone]):
                self._taken[zone] = at + 1
                return self._zones[zone][at]
            self._exhausted.add(zone)
            if len(self._exhausted) >= len(zones):
                self._taken.clear()
                self._exhausted.clear()
        return ""
