"""Logs that strangers can cause are bounded."""

from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.ratelimited import RateLimitedLogger
from grange.sim.pytest_plugin import Records


async def test_records_of_a_minute_are_bounded(clock: Clock, log: Logger, records: Records) -> None:
    limited = RateLimitedLogger(log, clock, per_minute=3)
    for number in range(10):
        limited.error("request failed", number=number)
        limited.warning("stream broke off")
    assert len(records) == 3
    await clock.sleep(60)
    limited.error("request failed", number=11)
    assert records[3:] == [
        ("log records left out", {"count": 17}),
        ("request failed", {"number": 11}),
    ]
