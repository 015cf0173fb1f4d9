"""What is reported about pods, and what is not reported about thousands at once."""

from grange.api.http import ADMIN, Request, Response
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.client.client import Client
from grange.client.transports.inprocess import InProcess
from grange.reconcile.recorder import Recorder
from grange.scheduler.pod_conditions import PodConditions
from grange.sim import builders


async def no_content(_: Request) -> Response:
    return Response(201, b"{}")


async def test_burst_of_bound_pods_fills_recorder_and_counts_the_rest(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    client = Client(InProcess(no_content, ADMIN), clock=clock)
    recorder = Recorder(client, "tester", clock=clock, rng=rng, log=log, limit=3)
    reporter = PodConditions(client, recorder, clock=clock, log=log)
    waiting = builders.pod("p9")
    reporter.unschedulable(waiting, "no room")
    pods = [builders.pod(f"p{number}", nodeName="n") for number in range(10)]
    reporter.scheduled(pods)
    numbers = recorder.statistics()
    assert (numbers.waiting, numbers.dropped) == (3, 8)  # the refusal and two bindings wait
    reporter.unschedulable(waiting, "no room")
    assert recorder.statistics().counted == 1  # it was forgotten with the binding: reported again
    await recorder.flush()
    assert recorder.statistics().sent == 3
