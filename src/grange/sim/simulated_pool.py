"""A pool of machines for worlds: it lends what it was given, and remembers to whom."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from grange.api.kinds.replicationcontroller import ReplicationController
from grange.reconcile.machine_pool import PoolExhausted, StaleRequest


def _anything(demand: ReplicationController, name: str) -> bool:
    """A machine that fits everybody."""
    return True


class SimulatedPool:
    """Machines that are always there; they become eligible for the controller that holds them.

    Args:
        names: of the machines, which are the names of their nodes.
        fits: whether a machine would do for a controller.

    Attributes:
        gate: called before every request with its name; raises what the pool is to answer.
        requests: request ids and the machines allocated under them.
    """

    def __init__(
        self,
        names: Iterable[str],
        *,
        fits: Callable[[ReplicationController, str], bool] = _anything,
    ) -> None:
        self._holders: dict[str, str] = dict.fromkeys(sorted(names), "")
        self._fits = fits
        self.requests: dict[str, tuple[str, ...]] = {}
        self._epochs: dict[str, int] = {}  # by holder, the highest
        self.gate: Callable[[str], None] = lambda request: None

    def _admit(self, holder: str, epoch: int) -> None:
        if epoch < self._epochs.get(holder, 0):
            raise StaleRequest(f"epoch {epoch} of {holder} is over: {self._epochs[holder]} is on")
        self._epochs[holder] = epoch

    async def claim(
        self,
        request_id: str,
        *,
        holder: str,
        demand: ReplicationController,
        count: int,
        epoch: int,
    ) -> Sequence[str]:
        """Lend machines.

        Raises:
            PoolExhausted: there are not so many.
            StaleRequest: the epoch is over.
        """
        self.gate("claim")
        self._admit(holder, epoch)
        known = self.requests.get(request_id)
        if known is not None:
            return known
        free = [n for n, held in self._holders.items() if not held and self._fits(demand, n)]
        if len(free) < count:
            raise PoolExhausted(f"{count} machines wanted, {len(free)} can be had: add machines")
        allocated = tuple(free[:count])
        for name in allocated:
            self._holders[name] = holder
        self.requests[request_id] = allocated
        return allocated

    async def release(self, names: Collection[str], *, holder: str, epoch: int) -> None:
        """Take machines back that the holder has.

        Raises:
            StaleRequest: the epoch is over.
        """
        self.gate("release")
        self._admit(holder, epoch)
        for name in names:
            if self._holders.get(name) == holder:
                self._holders[name] = ""
        self.requests = {
            request: allocated
            for request, allocated in self.requests.items()
            if any(self._holders[name] for name in allocated)
        }

    async def holders(self) -> Mapping[str, str]:
        """Every machine and its holder."""
        self.gate("holders")
        return dict(self._holders)
