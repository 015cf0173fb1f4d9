"""The pools that the labels of nodes make, kept up to date in a ledger of reservations."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from grange.api.kinds import NODE
from grange.api.kinds.node import Node
from grange.api.status import ApiError
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Child, Nursery
from grange.client.client import Client
from grange.controllers.testsession.library.library_errors import ControllerStartError
from grange.controllers.testsession.library.session_needs import current_pools
from grange.controllers.testsession.link_mounts import mounts_are_links
from grange.placement.machine_pools import ReservationManager
from grange.reconcile.informer import Informer


class PoolInventory:
    """What machines there are, and who has how many.

    Args:
        client: to the API.
        clock: time.
        rng: jitter.
        log: where failures of the watch go.

    Attributes:
        reservations: the ledger.
    """

    def __init__(self, client: Client, *, clock: Clock, rng: Stream, log: Logger) -> None:
        self.reservations = ReservationManager()
        self._client = client
        self._clock, self._rng, self._log = clock, rng, log
        self._listed: Sequence[Node] = ()
        self._informer: Informer[Node] | None = None
        self._task: Child[None] | None = None

    async def start(self, nursery: Nursery, changed: Callable[[], object]) -> None:
        """Read the nodes, and follow them until stopped.

        Args:
            nursery: of the task that follows them.
            changed: called after each change of a node.

        Raises:
            ControllerStartError: they cannot be listed.
        """
        try:
            self._listed = (await self._client.list(NODE)).items
        except ApiError as error:
            raise ControllerStartError(
                f"the controller cannot start: nodes cannot be listed: {error}; "
                "start it again when that is possible"
            ) from error
        if self._task is not None:
            return
        informer: Informer[Node] = Informer(
            self._client, NODE, clock=self._clock, rng=self._rng, log=self._log
        )

        def on_change(*_: Node) -> None:
            changed()

        informer.add_handler(on_change, on_change, on_change)
        self._informer = informer
        self._task = nursery.start(informer.run(), name="nodes of pools")

    def stop(self) -> None:
        """Follow the nodes no longer; does nothing where that is so."""
        if self._task is not None:
            self._task.cancel()
        self._task = self._informer = None

    def refresh(self, in_use: Mapping[str, int], occupied: Container[str] = ()) -> None:
        """Make the pools what the nodes are.

        Args:
            in_use: machines that are in the ledger, by pool.
            occupied: names of nodes that have pods of those who are in the ledger.
        """
        before = self.reservations.pools()
        now = current_pools(self._nodes(), in_use, occupied)
        for name in before.keys() - now.keys():
            self.reservations.remove_pool(before[name])
        for pool in now.values():
            self.reservations.add_pool(pool)

    def mounts_are_links(self) -> bool:
        """Whether pods are processes that share a file system."""
        return mounts_are_links(self._nodes())

    def _nodes(self) -> Iterable[Node]:
        if self._informer is not None and self._informer.has_synced:
            return self._informer.store.list()
        return self._listed
