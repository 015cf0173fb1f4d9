"""A pool of machines: what a holder is given belongs to it until it gives it back.

``MachinePool`` is the least that a pool must do, so that controllers can ask for machines without
knowing who provides them. The contract suite in ``tests/contract`` defines what that means, and every
implementation passes it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from grange.api.kinds.replicationcontroller import ReplicationController
from grange.base.errors import GrangeError


class PoolExhausted(GrangeError):
    """The pool has no machine that fits and may not make one: add machines or raise its limit."""


class StaleRequest(GrangeError):
    """The pool has a request from a later owner of the holder: the caller no longer owns it."""


class MachinePool(Protocol):
    """Lends machines, which are known by the names of their nodes.

    Every request carries an id. What was allocated under an id stays allocated until it is released,
    and asking again under the same id gives the same machines.

    Every request that changes something carries an epoch, too. The pool remembers the highest that it
    has seen for each holder and refuses lower ones: a request of an owner that is no longer the
    owner, or that was long on its way, changes nothing once its successor has spoken.
    """

    async def claim(
        self,
        request_id: str,
        *,
        holder: str,
        demand: ReplicationController,
        count: int,
        epoch: int,
    ) -> Sequence[str]:
        """Lend machines; they may still be on their way to becoming nodes.

        Args:
            request_id: idempotency key.
            holder: uid of who gets them.
            demand: whose node selector and template they must fit.
            count: how many; all or none.
            epoch: of the owner that acts for the holder.

        Returns:
            Names of the nodes, sorted.

        Raises:
            PoolExhausted: fewer machines are free; none is allocated.
            StaleRequest: the epoch is over; none is allocated.
        """

    async def release(self, names: Collection[str], *, holder: str, epoch: int) -> None:
        """Take machines back that the holder has; others are left alone.

        Raises:
            StaleRequest: the epoch is over; nothing is taken back.
        """

    async def holders(self) -> Mapping[str, str]:
        """Every machine of the pool by node name: uid of its holder, or empty."""


def epoch_of(version: str) -> int:
    """The epoch of a request: the version of the controller that it was decided on.

    An owner takes a controller over by writing to it, so versions rise from owner to owner. Zero for one
    that is not a number: such requests are fenced by nothing.
    """
    return int(version) if version.isdecimal() else 0
