"""Replicas from one ReplicationController to another, never lost between them.

There is no write on two objects, so the order is put down first, on the giver: nothing is changed
yet. Then the receiver asks for more and remembers the transfer's id, in one write. Then the giver
asks for less and forgets the order, in one write; at last the receiver forgets the id. A client that finds
an order, after a crash at any point, knows from these two objects what has been done and does the
rest. On the way there are too many replicas for a moment, never too few.

An order that is gone was carried out, unless the giver bears its id among those that were given up. So
everybody learns the fate of the order that he gave, whatever others ordered after it.
"""

from collections.abc import Mapping
from contextlib import suppress

import msgspec

from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Document, preconditions
from grange.api.replication import (
    GIVEN_UP_ANNOTATION,
    RECEIVED_ANNOTATION,
    TRANSFER_ANNOTATION,
    Transfer,
    after_transfer,
    given_up,
    received,
    transfer_of,
    written,
)
from grange.api.status import Conflict, Invalid, NotFound
from grange.base.plurals import counted
from grange.client.client import Client
from grange.client.replica_operations import OperationRefused, OtherCount

_ATTEMPTS = 10
_REMEMBERED = 16  # orders given up; its sender looks within a few requests, or died


async def transfer_replicas(  # noqa: PLR0913  both sides, both changes, both starting counts
    client: Client,
    namespace: str,
    giver: str,
    receiver: str,
    *,
    transfer_id: str,
    add: int,
    remove: int,
    giver_start: int,
    receiver_start: int,
) -> None:
    """Have one controller ask for more and another for less.

    Args:
        client: to the API.
        namespace: of both.
        giver: name of the one that shall ask for less.
        receiver: name of the one that shall ask for more.
        transfer_id: of this transfer; no two may have the same.
        add: so many more for the receiver.
        remove: so many fewer for the giver.
        giver_start: what the giver must ask for now.
        receiver_start: what the receiver must ask for now.

    Raises:
        Invalid: a name is empty, the two are one, or a number is negative or too large.
        OtherCount: a starting count does not hold; nothing was changed.
        Refused: the giver bears another order, which was put down meanwhile; nothing was changed.
        BadIntent: an order on the giver cannot be read.
        NotFound: one of them is gone; if it went meanwhile, what became of the order is not known.
        Conflict: others kept changing the controllers; the order stands, ``complete_transfer`` carries it out.
    Cancellation: the order may stand; ``complete_transfer`` carries it out.
    """
    _check(giver, receiver, add=add, remove=remove, giver_start=giver_start)
    await complete_transfer(client, namespace, giver)
    source = await client.get(REPLICATIONCONTROLLER, giver, namespace)
    target = await client.get(REPLICATIONCONTROLLER, receiver, namespace)
    past = _way_is_free(source)
    for seen, start in ((source, giver_start), (target, receiver_start)):
        if seen.spec.replicas != start:
            name = seen.metadata.name
            raise OtherCount(
                f"{name}: expected {counted(start, 'replica')}, found {seen.spec.replicas}"
            )
    order = Transfer(
        id=transfer_id,
        to=receiver,
        to_uid=target.metadata.uid,
        to_start=receiver_start,
        add=add,
        remove=remove,
    )
    await _write(client, source, {TRANSFER_ANNOTATION: written(order), **past})
    done = await _follow(client, namespace, giver, (source.metadata.uid, transfer_id))
    if done is None:
        raise NotFound(f"{giver} is gone: what became of its transfer {transfer_id} is not known")
    if not done:
        raise OtherCount(f"{receiver}: no longer asks for {receiver_start}; nothing was moved")


async def complete_transfer(client: Client, namespace: str, giver: str) -> bool:
    """Carry out, or give up, the transfer that the giver bears; nothing if it bears none.

    It is about the one that the giver bears at first: another one that is ordered meanwhile is left
    to its sender.

    Returns:
        False if it was given up because the receiver was gone, or asked for another number.

    Raises:
        BadIntent: the order cannot be read.
        Conflict: others kept changing the controllers; to be tried again.
    """
    return await _follow(client, namespace, giver, None) is not False


async def _follow(
    client: Client, namespace: str, giver: str, which: tuple[str, str] | None
) -> bool | None:
    """Carry out, or give up, one order.

    Args:
        client: to the API.
        namespace: of the giver.
        giver: its name.
        which: the giver's uid and the order's id; None for the order that it bears at first.

    Returns:
        Whether it was carried out; None if the giver is gone.

    Raises:
        BadIntent: the order cannot be read.
        Conflict: others kept changing the controllers; to be tried again.
    """
    for _ in range(_ATTEMPTS):
        source = await _find(client, namespace, giver)
        if source is None or (which is not None and source.metadata.uid != which[0]):
            return None
        order = transfer_of(source)
        if which is None:
            if order is None:
                return True
            which = source.metadata.uid, order.id
        if order is None or order.id != which[1]:
            return which[1] not in given_up(source)
        if order.refused:
            return False
        try:
            await _advance(client, namespace, giver, order)
        except Conflict:
            continue
    raise Conflict(f"the transfer of {giver}'s replicas could not be completed: it keeps changing")


def _way_is_free(source: ReplicationController) -> dict[str, str | None]:
    """What the next order has to remember of the last one.

    Raises:
        Refused: the last one is under way.
        BadIntent: it cannot be read.
    """
    last = transfer_of(source)
    if last is None:
        return {}
    if not last.refused:
        name = source.metadata.name
        raise OperationRefused(
            f"{name}: transfer {last.id} to {last.to} is in the way: it is still under way, "
            "wait for its end and try again"
        )
    remembered = [*given_up(source), last.id][-_REMEMBERED:]
    return {GIVEN_UP_ANNOTATION: written(remembered)}


async def prune(client: Client, receiver: ReplicationController) -> ReplicationController | None:
    """Take the notes of transfers that are over away from a receiver.

    The client that carries a transfer out does it last, and may crash before.

    Args:
        client: to the API.
        receiver: as it was read; it must be so still.

    Returns:
        The receiver as it is then; None if all notes are of transfers under way.

    Raises:
        BadIntent: notes or orders cannot be read.
        Conflict: the receiver has changed since it was read.
    """
    notes = received(receiver)
    kept = await _under_way(client, receiver.metadata.namespace, notes)
    if kept == notes:
        return None
    return await _write(client, receiver, {RECEIVED_ANNOTATION: written(kept)})


async def _advance(client: Client, namespace: str, giver: str, order: Transfer) -> None:
    """Do what is left of an order, or give it up.

    Raises:
        Conflict: another client wrote on one of the two; look again.
    """
    target = await _find(client, namespace, order.to)
    # The giver is read last: as long as it bears the order, the note has not been removed, so the
    # receiver, read before, shows truly whether it has its replicas.
    source = await _find(client, namespace, giver)
    if source is None or transfer_of(source) != order:
        return
    if target is None or target.metadata.uid != order.to_uid:
        await _refuse(client, source, order)
        return
    has = received(target)
    if order.id not in has:
        if target.spec.replicas != order.to_start:
            await _refuse(client, source, order)
            return
        kept = await _under_way(client, namespace, has)
        note = {RECEIVED_ANNOTATION: written({**kept, order.id: giver})}
        target = await _write(client, target, note, replicas=target.spec.replicas + order.add)
    # The giver may have been scaled meanwhile, so the difference is applied.
    left = max(0, source.spec.replicas - order.remove)
    done = {TRANSFER_ANNOTATION: None, **after_transfer(left)}
    await _write(client, source, done, replicas=left)
    rest = {key: name for key, name in received(target).items() if key != order.id}
    with suppress(Conflict, NotFound):  # the note does no harm; the next transfer takes it away
        await _write(client, target, {RECEIVED_ANNOTATION: written(rest)})


async def _refuse(client: Client, source: ReplicationController, order: Transfer) -> None:
    """Give an order up, in a way that its sender can see."""
    refused = msgspec.structs.replace(order, refused=True)
    await _write(client, source, {TRANSFER_ANNOTATION: written(refused)})


async def _find(client: Client, namespace: str, name: str) -> ReplicationController | None:
    try:
        return await client.get(REPLICATIONCONTROLLER, name, namespace)
    except NotFound:
        return None


async def _under_way(client: Client, namespace: str, notes: Mapping[str, str]) -> dict[str, str]:
    """Those notes whose givers still bear the order."""
    kept = {}
    for key, name in notes.items():
        source = await _find(client, namespace, name)
        order = transfer_of(source) if source is not None else None
        if order is not None and order.id == key and not order.refused:
            kept[key] = name
    return kept


async def _write(
    client: Client,
    seen: ReplicationController,
    annotations: Mapping[str, str | None],
    *,
    replicas: int | None = None,
) -> ReplicationController:
    """One fenced write: annotations, and the count with them."""
    meta = seen.metadata
    patch: Document = {
        "metadata": {
            **preconditions(meta),
            "annotations": dict(annotations),
        }
    }
    if replicas is not None:
        patch["spec"] = {"replicas": replicas}
    return await client.patch(REPLICATIONCONTROLLER, meta.name, meta.namespace, patch=patch)


def _check(giver: str, receiver: str, *, add: int, remove: int, giver_start: int) -> None:
    for field, name in (("giver", giver), ("receiver", receiver)):
        if not name:
            raise Invalid(f"{field}: name a ReplicationController")
    if giver == receiver:
        raise OperationRefused(f"{giver} cannot give replicas to itself")
    for field, value in (("add", add), ("remove", remove)):
        if value < 0:
            raise Invalid(f"{field}: {value} is negative: move 0 or more")
    if remove > giver_start:
        raise Invalid(f"remove: {remove} is more than the {giver_start} that {giver} asks for")
