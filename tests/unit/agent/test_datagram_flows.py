"""Tunnels of datagrams that stall, and endpoints that cannot be reached."""

from itertools import pairwise

from grange.agent.service_proxy.datagram_tunnel import DatagramTunnel
from grange.agent.service_proxy.dial_backoff import DialBackoff
from grange.agent.service_proxy.routes import Endpoint
from grange.base.clock import Clock
from grange.base.message_socket import MessageSocket
from grange.base.tasks import Nursery

ONE, OTHER = Endpoint("127.9.0.1", 53, "far"), Endpoint("127.9.0.2", 53, "far")


async def test_closing_a_stalled_tunnel_ends_it(clock: Clock) -> None:
    tunnel = DatagramTunnel(lambda _: None)

    async def takes_nothing(messages: MessageSocket) -> None:
        await clock.sleep(3600)

    began = clock.monotonic()
    async with Nursery("proxy") as nursery:
        running = nursery.start(tunnel.run(takes_nothing))
        for _ in range(1000):
            tunnel.send(b"lost")
        await clock.sleep(1)
        assert not running.done()
        tunnel.close()
    assert clock.monotonic() - began == 1
    assert tunnel.is_closed
    assert not tunnel.has_received


async def test_tunnel_ends_with_its_far_end(clock: Clock) -> None:
    received: list[bytes] = []
    tunnel = DatagramTunnel(received.append)

    async def answers_once(messages: MessageSocket) -> None:
        await messages.send(await messages.receive() or b"nothing")
        await clock.sleep(1)
        await messages.close()

    tunnel.send(b"data")
    await tunnel.run(answers_once)
    assert received == [b"data"]
    assert (tunnel.has_received, tunnel.is_closed) == (True, False)


def test_failing_endpoint_is_left_alone_for_longer_each_time() -> None:
    backoff = DialBackoff()
    now = 0.0
    tries: list[float] = []
    while len(tries) < 9:
        if ONE not in backoff.waiting(now):
            tries.append(now)
            backoff.failed(ONE, now)
        now += 0.5
    assert [later - sooner for sooner, later in pairwise(tries)] == [
        0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0
    ]  # fmt: skip
    assert OTHER not in backoff.waiting(now)


def test_endpoint_that_answers_is_dialled_at_once_again() -> None:
    backoff = DialBackoff()
    for now in (0.0, 1.0, 3.0):
        backoff.failed(ONE, now)
    assert ONE in backoff.waiting(4.0)
    backoff.answered(ONE)
    assert not backoff.waiting(4.0)
    backoff.failed(ONE, 5.0)
    assert (ONE in backoff.waiting(5.4), ONE in backoff.waiting(5.5)) == (True, False)


def test_failure_long_after_the_last_is_a_first_one() -> None:
    backoff = DialBackoff()
    for now in (0.0, 1.0, 3.0, 100.0):
        backoff.failed(ONE, now)
    assert (ONE in backoff.waiting(100.4), ONE in backoff.waiting(100.5)) == (True, False)
