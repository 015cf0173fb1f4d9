"""Pairs of message sockets: order, back-pressure and their end."""

import pytest

from grange.base.clock import Clock
from grange.base.message_socket import relay, socket_pair
from grange.base.tasks import Nursery


async def test_sender_waits_while_nothing_is_taken(clock: Clock) -> None:
    ours, theirs = socket_pair()
    sent: list[int] = []

    async def send_all() -> None:
        for number in range(100):
            await ours.send(b"%d" % number)
            sent.append(number)
        await ours.close()

    async with Nursery() as nursery:
        nursery.start(send_all())
        await clock.sleep(1)
        assert 0 < len(sent) < 100
        taken: list[int] = []
        while len(taken) < 100 and (message := await theirs.receive()) is not None:
            taken.append(int(message))
            await clock.sleep(0.01)
        assert taken == list(range(100))
        assert await theirs.receive() is None


async def test_close_wakes_a_waiting_sender(clock: Clock) -> None:
    ours, theirs = socket_pair()

    async def flood() -> None:
        with pytest.raises(ConnectionError):
            while True:
                await ours.send(b"x")

    async with Nursery() as nursery:
        child = nursery.start(flood())
        await clock.sleep(1)
        assert not child.done()
        await theirs.close()


async def test_relay_closes_both_when_one_closes(clock: Clock) -> None:
    ours, near = socket_pair()
    far, theirs = socket_pair()
    async with Nursery() as nursery:
        nursery.start(relay(near, far))
        await ours.send(b"hello")
        assert await theirs.receive() == b"hello"
        await theirs.send(b"bye")
        await theirs.close()
        assert await ours.receive() == b"bye"
        assert await ours.receive() is None
