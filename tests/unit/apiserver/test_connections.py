"""Which connections stay when there are many."""

from dataclasses import dataclass, field

from hypothesis import given, strategies as st

from grange.apiserver.connections import Connection, ConnectionLimits, Connections


@dataclass
class World:
    """Connections that note which of them were closed."""

    limits: ConnectionLimits
    closed: list[Connection] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.connections = Connections(self.limits)

    def add(self, peer: str = "a") -> Connection:
        made = Connection(peer, lambda: self.closed.append(made))
        if not self.connections.add(made):
            self.closed.append(made)
        return made


def test_oldest_of_the_same_peer_goes_first() -> None:
    world = World(ConnectionLimits(100, 10, 2))
    other, first, second = world.add("b"), world.add(), world.add()
    world.add()
    assert world.closed == [first]
    world.connections.remove(second)
    world.add()
    assert world.closed == [first]
    assert other not in world.closed


def test_oldest_of_all_goes_beyond_the_bound_in_total() -> None:
    world = World(ConnectionLimits(100, 3, 3))
    first, *_ = (world.add(peer) for peer in "abcd")
    assert world.closed == [first]


def test_connection_with_a_credential_stays() -> None:
    world = World(ConnectionLimits(2, 2, 2))
    for _ in range(2):
        world.connections.authenticate(world.add())
    refused = world.add()
    assert world.closed == [refused]
    assert (world.connections.refused, world.connections.evicted, len(world.connections)) == (
        1,
        0,
        2,
    )
    world.connections.make_room()
    assert len(world.connections) == 2


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "authenticate", "remove", "room"]), st.integers(0, 9))
    )
)
def test_bounds_hold_after_any_steps(steps: list[tuple[str, int]]) -> None:
    limits = ConnectionLimits(6, 4, 2)
    world = World(limits)
    made: list[Connection] = []
    known: set[int] = set()
    for action, number in steps:
        chosen = made[number % len(made)] if made else None
        match action:
            case "add":
                made.append(world.add("abc"[number % 3]))
            case "authenticate" if chosen is not None:
                world.connections.authenticate(chosen)
                if chosen not in world.closed:
                    known.add(id(chosen))
            case "remove" if chosen is not None:
                world.connections.remove(chosen)
                known.discard(id(chosen))
            case "room":
                world.connections.make_room()
        assert len(world.connections) <= limits.total
        for peer in "abc":
            same = world.connections._by_peer.get(peer, {})
            assert len(same) <= limits.unauthenticated_per_peer
        assert not known & {id(connection) for connection in world.closed}
    for connection in made:
        world.connections.remove(connection)
    assert len(world.connections) == 0
    assert not world.connections._by_peer
