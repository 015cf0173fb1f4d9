"""Which connections stay when there are many: bounds in total, and for those without a credential.

Pure bookkeeping. A connection is *unauthenticated* until a request on it has shown a credential that is
known. Beyond a bound the oldest unauthenticated connection is closed for the newest: a client
that holds idle connections loses them, and a client with a credential shows it within
milliseconds.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections there may be at once.

    Attributes:
        total: of all kinds.
        unauthenticated: without a credential so far, TLS handshakes included.
        unauthenticated_per_peer: of these from one address.
    """

    total: int = 4_096
    unauthenticated: int = 512
    unauthenticated_per_peer: int = 256


@dataclass(slots=True, eq=False)
class Connection:
    """One connection.

    Attributes:
        peer: its address.
        close: ends it at once.
    """

    peer: str
    close: Callable[[], None]


class Connections:
    """All connections of a listener.

    Args:
        limits: how many there may be.

    Attributes:
        evicted: how many were closed for others.
        refused: how many were not let in.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._authenticated: dict[Connection, None] = {}
        self._unauthenticated: dict[Connection, None] = {}  # in the order of arrival
        self._by_peer: dict[str, dict[Connection, None]] = {}
        self.evicted = 0
        self.refused = 0

    def __len__(self) -> int:
        return len(self._authenticated) + len(self._unauthenticated)

    def add(self, connection: Connection) -> bool:
        """Let a new connection in, closing an older one if need be; False if there is no room."""
        limits = self._limits
        same = self._by_peer.get(connection.peer, {})
        if len(same) >= limits.unauthenticated_per_peer:
            self._evict(next(iter(same)))
        elif len(self._unauthenticated) >= limits.unauthenticated or len(self) >= limits.total:
            if not self._unauthenticated:
                self.refused += 1
                return False
            self._evict(next(iter(self._unauthenticated)))
        self._unauthenticated[connection] = None
        self._by_peer.setdefault(connection.peer, {})[connection] = None
        return True

    def make_room(self) -> None:
        """Close the oldest unauthenticated connection, if there is one: descriptors ran out."""
        if self._unauthenticated:
            self._evict(next(iter(self._unauthenticated)))

    def authenticate(self, connection: Connection) -> None:
        """A request on the connection has shown a known credential; idempotent."""
        if connection in self._unauthenticated:
            self._forget_unauthenticated(connection)
            self._authenticated[connection] = None

    def remove(self, connection: Connection) -> None:
        """The connection has ended; idempotent."""
        if connection in self._unauthenticated:
            self._forget_unauthenticated(connection)
        self._authenticated.pop(connection, None)

    def _evict(self, connection: Connection) -> None:
        self._forget_unauthenticated(connection)
        self.evicted += 1
        connection.close()

    def _forget_unauthenticated(self, connection: Connection) -> None:
        del self._unauthenticated[connection]
        same = self._by_peer[connection.peer]
        del same[connection]
        if not same:
            del self._by_peer[connection.peer]
