"""The service against a real API server: what is placed, reported, retried, and never done twice."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from tests.support.scheduler_world import binding_answers, refusal, world

from grange.api.http import Request, Response
from grange.api.kinds import NAMESPACE, NODE, POD
from grange.api.kinds.pod import condition
from grange.api.meta import Document
from grange.api.status import Timeout
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import registry
from grange.base.rng import Stream
from grange.reconcile.deps import Deps
from grange.reconcile.informer import InformerFactory
from grange.scheduler import plugins
from grange.scheduler.errors import SchedulerNotRunning
from grange.scheduler.framework import SUCCESS, Code, CycleState, Plugin, Profile, Status
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.service import Scheduler, SchedulerConfig
from grange.sim import builders
from grange.sim.api_fixture import Handler

SMALL = {"cpu": "1", "memory": "1Gi", "pods": "10"}


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


async def test_waiting_pods_are_bound_and_reported(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", "b")
        await made.add_pods(*names("p", 6), requests={"cpu": "500m"})
        scheduler = await made.start_scheduler()
        await made.settle()
        placed = await made.pods()
        assert sorted(placed.values()) == ["a"] * 3 + ["b"] * 3
        assert scheduler.cache.assumed_count == 0  # confirmed by the informer
        assert scheduler.cache.pod_count == 6
        assert len(scheduler.queue) == 0
        assert {found for found, _ in await made.events()} == {"Scheduled"}
        assert (made.writes("/bindings"), made.writes("/binding")) == (1, 0)


async def test_a_pod_that_fits_nowhere_reports_why_once(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The condition and the event appear, and further failures for the same reason write nothing."""
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", "b", "c", capacity=SMALL)
        await made.add_pods("big", requests={"cpu": "8"})
        await made.start_scheduler()
        await made.settle()
        assert await made.message("big") == (
            "0/3 nodes are available: 3 Insufficient cpu."
            " preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
        )
        assert ("FailedScheduling", "big") in await made.events()
        before = len(made.requests)
        for number in range(5):
            await made.add_pods(f"other{number}", requests={"cpu": "10m"})
            await made.settle()
            await made.delete(f"other{number}")
        await made.settle(700.0)  # also the leftover flush, twice
        assert await made.message("big") == (
            "0/3 nodes are available: 3 Insufficient cpu."
            " preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
        )
        assert made.writes("/big/status") == 1
        # Nothing about the big pod: each other pod costs a binding and an event.
        assert len(made.requests) - before <= 10


async def test_capacity_that_appears_is_used(clock: Clock, rng: Stream, log: Logger) -> None:
    """A new node, a deleted pod, a removed taint and a new label each bring a waiting pod in."""
    async with world(clock, rng, log) as made:
        await made.start_scheduler()
        await made.add_pods("first", requests={"cpu": "1"})
        await made.settle()
        assert await made.message("first") == "no nodes available to schedule pods"
        await made.add_nodes("a", capacity=SMALL)
        await made.settle()
        assert (await made.pods())["first"] == "a"
        await made.add_pods("second", requests={"cpu": "1"})
        await made.settle()
        assert await made.message("second") == (
            "0/1 nodes are available: 1 Insufficient cpu."
            " preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
        )
        await made.delete("first")
        await made.settle()
        assert (await made.pods())["second"] == "a"
        taints = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
        await made.add_nodes("b", capacity=SMALL, taints=taints)
        await made.add_pods("third", requests={"cpu": "1"})
        await made.settle()
        assert await made.message("third") == (
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s)."
            " preemption: 0/2 nodes are available: "
            "1 No preemption victims found for incoming pod, "
            "1 Preemption is not helpful for scheduling."
        )
        await made.client.patch(NODE, "b", patch={"spec": {"taints": []}})
        await made.settle()
        assert (await made.pods())["third"] == "b"
        await made.add_pods("fourth", nodeSelector={"disk": "ssd"})
        await made.settle()
        assert "didn't match" in await made.message("fourth")
        await made.client.patch(NODE, "a", patch={"metadata": {"labels": {"disk": "ssd"}}})
        await made.settle()
        assert (await made.pods())["fourth"] == "a"


async def test_urgent_pods_go_first(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity=SMALL)
        await made.add_pods("low1", "low2", requests={"cpu": "1"})
        await made.add_pods("high", requests={"cpu": "1"}, priority=10)
        await made.start_scheduler()
        await made.settle()
        assert await made.pods() == {"high": "a", "low1": "", "low2": ""}


async def test_only_our_pods_are_placed(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a")
        await made.add_pods("theirs", schedulerName="another")
        await made.add_pods("ours", schedulerName="grange")
        await made.add_pods("gated", schedulingGates=[{"name": "quota"}])
        await made.start_scheduler()
        await made.settle()
        assert await made.pods() == {"theirs": "", "ours": "a", "gated": ""}
        assert await made.message("gated") == "Scheduling is blocked by gates: quota"
        patch: Document = {"spec": {"schedulingGates": None}}
        await made.client.patch(POD, "gated", "default", patch=patch)
        await made.settle()
        assert (await made.pods())["gated"] == "a"


async def test_check_104_a_refused_binding_frees_its_capacity_at_once(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """While one pod backs off after the error, another may have its place."""
    async with world(clock, rng, log) as made:
        refused: list[str] = []

        async def gate(request: Request, handle: Handler) -> Response:
            if request.path.endswith("/unlucky/binding") and len(refused) < 2:
                refused.append(request.path)
                return refusal(503, "ServiceUnavailable")
            return await handle(request)

        made.intercept = gate
        await made.add_nodes("a", capacity=SMALL)
        scheduler = await made.start_scheduler()
        await made.add_pods("unlucky", requests={"cpu": "1"})
        await made.settle(0.5)
        assert len(refused) == 1
        assert scheduler.cache.pod_count == 0
        await made.add_pods("quick", requests={"cpu": "1"})
        await made.settle()
        assert (await made.pods())["quick"] == "a"
        await made.delete("quick")
        await made.settle(30.0)
        assert (await made.pods())["unlucky"] == "a"


async def test_check_105_pod_deleted_while_binding_leaves_no_charge(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:

        async def gate(request: Request, handle: Handler) -> Response:
            if request.path.endswith("/binding"):
                await clock.sleep(5.0)
            return await handle(request)

        made.intercept = gate
        await made.add_nodes("a", capacity=SMALL)
        scheduler = await made.start_scheduler()
        await made.add_pods("p", requests={"cpu": "1"})
        await made.settle(1.0)
        assert scheduler.cache.assumed_count == 1
        await made.delete("p")
        await made.settle(1.0)
        assert (scheduler.cache.assumed_count, scheduler.cache.pod_count) == (0, 0)
        await made.settle(10.0)
        assert len(scheduler.queue) == 0
        assert scheduler.cache.pod_count == 0


@pytest.mark.parametrize("landed", [True, False])
async def test_unknown_outcome_is_read_back_and_not_bound_elsewhere(
    clock: Clock, rng: Stream, log: Logger, *, landed: bool
) -> None:
    """The write is lost, or made and its answer lost; meanwhile the capacity stays reserved."""
    async with world(clock, rng, log) as made:
        lost: list[str] = []

        async def gate(request: Request, handle: Handler) -> Response:
            if request.path.endswith("/binding") and not lost:
                lost.append(request.path)
                if landed:
                    await handle(request)
                raise Timeout("no answer")
            return await handle(request)

        made.intercept = gate
        await made.add_nodes("a", "b", capacity=SMALL)
        scheduler = await made.start_scheduler()
        await made.add_pods("p", requests={"cpu": "1"})
        await made.settle()
        assert (await made.pods())["p"] == "a"
        assert len(lost) == 1
        assert made.writes("/binding") == (1 if landed else 2)
        assert scheduler.cache.assumed_count == 0
        assert scheduler.cache.pod_count == 1


@pytest.mark.parametrize("landed", [True, False])
async def test_a_server_error_is_settled_by_what_the_server_holds(
    clock: Clock, rng: Stream, log: Logger, *, landed: bool
) -> None:
    """The server answered, so there is nothing to wait for: the pod has a node or it has not."""
    async with world(clock, rng, log) as made:
        broken: list[str] = []

        async def gate(request: Request, handle: Handler) -> Response:
            if request.path.endswith("/binding") and not broken:
                broken.append(request.path)
                if landed:
                    await handle(request)
                return refusal(500, "InternalError")
            return await handle(request)

        made.intercept = gate
        await made.add_nodes("a", capacity=SMALL)
        scheduler = await made.start_scheduler()
        await made.add_pods("p", requests={"cpu": "1"})
        await made.settle(10.0)
        assert (await made.pods())["p"] == "a"
        assert made.writes("/binding") == (1 if landed else 2)
        assert (scheduler.cache.assumed_count, scheduler.cache.pod_count) == (0, 1)


async def test_a_pod_that_another_scheduler_bound_is_let_go(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The conflict shows it; the assumption is taken back and the pod charged where it really is."""
    async with world(clock, rng, log) as made:

        async def gate(request: Request, handle: Handler) -> Response:
            if request.path.endswith("/binding"):
                body: Document = {
                    "metadata": {"name": "p"},
                    "target": {"kind": "Node", "name": "b"},
                }
                await made.client.post(POD, "p", "default", "binding", body)
            return await handle(request)

        made.intercept = gate
        await made.add_nodes("a", "b", capacity=SMALL)
        scheduler = await made.start_scheduler()
        await made.add_pods("p", requests={"cpu": "1"})
        await made.settle()
        assert (await made.pods())["p"] == "b"
        assert made.writes("/binding") == 1
        nodes = {name: scheduler.cache.node_info(name) for name in ("a", "b")}
        assert {name: info.usage.pods for name, info in nodes.items() if info} == {"a": 0, "b": 1}
        assert len(scheduler.queue) == 0


async def test_while_the_server_is_silent_nothing_is_given_away(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A binding without an answer may have been made: its capacity is not for others."""
    async with world(clock, rng, log) as made:
        silent = True

        async def gate(request: Request, handle: Handler) -> Response:
            if silent and "/pods/" in request.path:
                raise Timeout("no answer")
            return await handle(request)

        made.intercept = gate
        await made.add_nodes("a", capacity=SMALL)
        scheduler = await made.start_scheduler()
        await made.add_pods("p", requests={"cpu": "1"})
        await made.settle(1.0)
        await made.add_pods("q", requests={"cpu": "1"}, priority=5)
        await made.settle(120.0)
        assert scheduler.cache.assumed_count == 1
        assert await made.pods() == {"p": "", "q": ""}
        silent = False
        await made.settle(30.0)
        assert await made.pods() == {"p": "a", "q": ""}


@pytest.mark.parametrize("group", [1, 7, 128])
async def test_two_schedulers_never_bind_a_pod_twice(
    clock: Clock, rng: Stream, log: Logger, *, group: int
) -> None:
    """The loser of each race meets a conflict, takes its assumption back, and both settle."""
    async with world(clock, rng, log) as made:
        answers: list[tuple[str, int]] = []

        async def gate(request: Request, handle: Handler) -> Response:
            response = await handle(request)
            answers.extend(binding_answers(request, response))
            return response

        made.intercept = gate
        await made.add_nodes(*names("n", 4))
        one = await made.start_scheduler(SchedulerConfig(binding_group=group))
        other = await made.start_scheduler(SchedulerConfig(binding_group=group))
        await made.add_pods(*names("p", 40), requests={"cpu": "100m"})
        await made.settle(40.0)
        placed = await made.pods()
        assert all(placed.values())
        accepted = [name for name, code in answers if code == 201]
        assert sorted(accepted) == sorted(set(accepted))
        assert len(accepted) == 40
        assert len(answers) > 40  # or there was no race to lose
        for scheduler in (one, other):
            assert scheduler.cache.assumed_count == 0
            assert scheduler.cache.pod_count == 40
            assert len(scheduler.queue) == 0


async def test_a_scheduler_that_starts_again_finds_everything(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Nothing but the API remembers: what was assumed and not written is decided again."""
    async with world(clock, rng, log) as made:

        async def stuck(request: Request, handle: Handler) -> Response:
            if request.path.endswith("/binding") and made.writes("/binding") > 3:
                await clock.sleep(1e6)
            return await handle(request)

        made.intercept = stuck
        await made.add_nodes("a", "b", capacity=SMALL)
        await made.add_pods(*names("p", 8), requests={"cpu": "250m"})
        await made.start_scheduler(SchedulerConfig(binders=1, binding_group=1))
        await made.settle()
        assert sum(1 for node in (await made.pods()).values() if node) == 3
        made.intercept = None
        successor = await made.start_scheduler()
        await made.settle()
        placed = await made.pods()
        assert sorted(placed.values()) == ["a"] * 4 + ["b"] * 4
        assert successor.cache.pod_count == 8


async def test_a_node_that_disappears_takes_no_more_pods(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", "b", capacity=SMALL)
        await made.start_scheduler()
        await made.add_pods("p", "q", requests={"cpu": "1"})
        await made.settle()
        await made.client.delete(NODE, "a")
        await made.add_pods("r", requests={"cpu": "100m"})
        await made.settle()
        assert await made.message("r") == (
            "0/1 nodes are available: 1 Insufficient cpu."
            " preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
        )
        await made.add_nodes("a", capacity=SMALL)
        await made.settle()
        # The pod that was on the old node of that name still counts.
        assert await made.message("r") == (
            "0/2 nodes are available: 2 Insufficient cpu."
            " preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
        )


async def test_finished_pods_hold_nothing(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity=SMALL)
        scheduler = await made.start_scheduler()
        await made.add_pods("job", requests={"cpu": "1"})
        await made.settle()
        await made.add_pods("next", requests={"cpu": "1"})
        await made.settle()
        patch: Document = {"status": {"phase": "Succeeded"}}
        await made.client.patch(POD, "job", "default", patch=patch, subresource="status")
        await made.settle()
        assert (await made.pods())["next"] == "a"
        assert scheduler.cache.pod_count == 1


async def test_pods_bound_by_others_are_respected(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity=SMALL)
        await made.add_pods("taken", requests={"cpu": "900m"}, nodeName="a")
        await made.start_scheduler()
        await made.add_pods("p", requests={"cpu": "200m"})
        await made.settle()
        assert await made.message("p") == (
            "0/1 nodes are available: 1 Insufficient cpu."
            " preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
        )


async def test_a_corrupted_cache_is_rebuilt(clock: Clock, rng: Stream, log: Logger) -> None:
    """A pod whose cached node is not its node can only be a bug or a lost history: start over."""
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", "b", capacity=SMALL)
        scheduler = await made.start_scheduler()
        await made.add_pods("p", requests={"cpu": "1"})
        await made.settle()
        pod = await made.pod("p")
        scheduler.cache.remove_pod(pod)
        info = PodInfo.of(pod)
        scheduler.cache.add_pod(info.on("b"))
        await made.client.patch(POD, "p", "default", patch={"metadata": {"labels": {"k": "v"}}})
        await made.settle()
        node = scheduler.cache.node_info("a")
        assert node is not None
        assert node.usage.cpu_milli == 1000
        await made.add_pods("q", requests={"cpu": "1"})
        await made.settle()
        assert (await made.pods())["q"] == "b"


async def test_expired_assumptions_are_queued_again(clock: Clock, rng: Stream, log: Logger) -> None:
    """With a deadline set, a binding that never shows up is given up and the pod tried again."""
    async with world(clock, rng, log) as made:

        async def gate(request: Request, handle: Handler) -> Response:
            if request.path.endswith("/binding") and made.writes("/binding") == 1:
                return Response(201, b"{}")  # answers yes and does nothing
            return await handle(request)

        made.intercept = gate
        await made.add_nodes("a", capacity=SMALL)
        await made.start_scheduler(SchedulerConfig(assume_ttl_s=30.0))
        await made.add_pods("p", requests={"cpu": "1"})
        await made.settle(20.0)
        assert (await made.pods())["p"] == ""
        await made.settle(30.0)
        assert (await made.pods())["p"] == "a"


class _Ledger:
    """Reserves everything and refuses the first permit; remembers its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        self.calls.append(f"reserve {node_name}")
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.calls.append(f"unreserve {node_name}")

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        if self.calls.count("reserve a") == 1:
            return Status(Code.UNSCHEDULABLE, ("not yet",))
        return SUCCESS


async def test_check_114_a_refused_permit_takes_the_reservation_back(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        ledger = _Ledger()
        plugin = Plugin("Ledger", reserve=ledger, permit=ledger)
        profile = Profile([*plugins.DEFAULT, plugin])
        await made.add_nodes("a", capacity=SMALL)
        scheduler = await made.start_scheduler(profile=profile)
        await made.add_pods("p", requests={"cpu": "1"})
        await made.settle()
        assert ledger.calls == ["reserve a", "unreserve a"]
        assert scheduler.cache.pod_count == 0
        assert await made.message("p") == "0/1 nodes are available: not yet."
        await made.settle(700.0)
        assert (await made.pods())["p"] == "a"


class _Failing:
    """Answers with an error, once, where it is asked."""

    def __init__(self, reserves: int, permits: int) -> None:
        self.left = {"reserve": reserves, "permit": permits}
        self.booked: list[str] = []

    def _answer(self, point: str) -> Status:
        self.left[point] -= 1
        return SUCCESS if self.left[point] < 0 else Status(Code.ERROR, ("books are away",))

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        self.booked.append(node_name)
        return self._answer("reserve")

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.booked.remove(node_name)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return self._answer("permit")


@pytest.mark.parametrize(("reserves", "permits"), [(1, 0), (0, 1)])
async def test_an_error_in_reserve_or_permit_is_no_refusal(
    clock: Clock, rng: Stream, log: Logger, reserves: int, permits: int
) -> None:
    """The pod shows an error and tried again after a second, with no event to call it."""
    async with world(clock, rng, log) as made:
        failing = _Failing(reserves, permits)
        plugin = Plugin("Failing", reserve=failing, permit=failing)
        await made.add_nodes("a", capacity=SMALL)
        scheduler = await made.start_scheduler(profile=Profile([*plugins.DEFAULT, plugin]))
        await made.add_pods("p", requests={"cpu": "1"})
        await made.settle(0.5)
        found = condition(await made.pod("p"), "PodScheduled")
        assert found is not None
        assert (found.reason, found.message) == (
            "SchedulerError",
            "0/1 nodes are available: books are away.",
        )
        assert (failing.booked, scheduler.cache.pod_count) == ([], 0)
        await made.settle(2.5)
        assert (await made.pods())["p"] == "a"


@pytest.mark.parametrize("written", [False, True])
async def test_what_was_reserved_is_given_up_with_the_pod(
    clock: Clock, rng: Stream, log: Logger, written: bool
) -> None:
    """A pod that goes while its binding is written leaves no reservation; a bound one keeps its."""
    async with world(clock, rng, log) as made:
        ledger = _Ledger()
        profile = Profile([*plugins.DEFAULT, Plugin("Ledger", reserve=ledger)])

        async def gate(request: Request, handle: Handler) -> Response:
            if not request.path.endswith(("/binding", "/bindings")):
                return await handle(request)
            if written:
                await handle(request)
            else:
                await made.client.delete(POD, "p", "default")
            await made.settle()  # the informers have seen it before the answer comes
            raise Timeout("the answer is lost")

        await made.add_nodes("a", capacity=SMALL)
        scheduler = await made.start_scheduler(profile=profile)
        made.intercept = gate
        await made.add_pods("p", requests={"cpu": "1"})
        await made.settle(5.0)
        assert ledger.calls == (["reserve a"] if written else ["reserve a", "unreserve a"])
        assert scheduler.cache.pod_count == written


async def test_many_pods_are_decided_in_slices(clock: Clock, rng: Stream, log: Logger) -> None:
    """Other tasks get their turn between slices, however many pods wait."""
    async with world(clock, rng, log) as made:
        await made.add_nodes(*names("n", 5))
        await made.add_pods(*names("p", 200), requests={"cpu": "10m"})
        scheduler = await made.start_scheduler(
            SchedulerConfig(slice_pods=10, backlog=50, binders=8)
        )
        largest = 0
        while scheduler.cache.pod_count < 200:
            before = scheduler.cycle.decisions
            await clock.sleep(0)
            largest = max(largest, scheduler.cycle.decisions - before)
        assert largest <= 10
        await made.settle()
        assert all((await made.pods()).values())


class _Buggy:
    """A plugin with a bug that one pod brings out, in the middle of a decision, so many times."""

    def __init__(self, point: str, times: int) -> None:
        self.point, self.left = point, times
        self.booked: list[str] = []

    def _stumble(self, point: str, pod: PodInfo) -> None:
        if point == self.point and "poison" in pod.pod.metadata.name and self.left:
            self.left -= 1
            raise RuntimeError("a bug")

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        self.booked.append(pod.uid)
        self._stumble("reserve", pod)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.booked.remove(pod.uid)
        self._stumble("unreserve", pod)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        self._stumble("permit", pod)
        if self.point == "unreserve" and self.left:
            return Status(Code.UNSCHEDULABLE, ("no",))
        return SUCCESS


@pytest.mark.parametrize("point", ["reserve", "permit", "unreserve"])
async def test_a_bug_that_one_pod_meets_stops_no_other_pod(
    clock: Clock, rng: Stream, log: Logger, *, point: str
) -> None:
    """Not supervised, so it would end the service; the pod shows it, holds nothing, and comes back."""
    async with world(clock, rng, log) as made:
        buggy = _Buggy(point, times=3)
        plugin = Plugin("Buggy", reserve=buggy, permit=buggy)
        await made.add_nodes("a", capacity=SMALL)
        await made.add_pods("poison", requests={"cpu": "1"}, priority=9)
        scheduler = await made.start_scheduler(profile=Profile([*plugins.DEFAULT, plugin]))
        await made.settle(0.5)
        found = condition(await made.pod("poison"), "PodScheduled")
        assert found is not None
        assert found.reason == "SchedulerError"
        assert found.message == "bug on the way: RuntimeError: a bug"
        assert (buggy.booked, scheduler.cache.pod_count) == ([], 0)
        assert scheduler.queue.statistics().in_flight == 0
        if point != "unreserve":
            await made.add_pods("other", requests={"cpu": "1"})
            await made.settle(1.0)
            assert (await made.pods())["other"] == "a"
            await made.delete("other")
        await made.settle(30.0)
        assert (buggy.left, (await made.pods())["poison"]) == (0, "a")
        assert (scheduler.cache.assumed_count, scheduler.cache.pod_count) == (0, 1)


@pytest.mark.parametrize("count", [32, 33])
async def test_only_when_pod_after_pod_meets_a_bug_the_service_crashes(
    clock: Clock, rng: Stream, log: Logger, *, count: int
) -> None:
    """What they share may be the reason, and a new start heals that."""
    buggy = _Buggy("reserve", times=count)
    profile = Profile([*plugins.DEFAULT, Plugin("Buggy", reserve=buggy)])
    crash: AbstractContextManager[object] = nullcontext()
    if count > 32:
        crash = pytest.raises(ExceptionGroup)
    with crash:
        async with world(clock, rng, log) as made:
            await made.add_nodes("a")
            await made.add_pods(*names("poison", count))
            await made.start_scheduler(profile=profile)
            await made.settle(10.0)
            assert all((await made.pods()).values())
    assert buggy.left == 0


async def test_after_a_crash_the_service_starts_from_what_is_true(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Pods in flight are queued again, bindings under way are settled, nothing stays assumed."""
    async with world(clock, rng, log) as made:
        crashes: list[str] = []

        async def slow(request: Request, handle: Handler) -> Response:
            if request.path.endswith("/poison/binding") and not crashes:
                crashes.append(request.path)
                raise RuntimeError("a bug in the transport")
            if request.path.endswith(("/binding", "/bindings")):
                await clock.sleep(2.0)
            return await handle(request)

        made.intercept = slow
        await made.add_nodes("a", "b", capacity=SMALL)
        scheduler = await made.start_scheduler(supervised=True)
        await made.add_pods("p", "q", requests={"cpu": "400m"})
        await made.settle(1.0)
        assert scheduler.cache.assumed_count == 2
        await made.add_pods("poison", requests={"cpu": "400m"})
        await made.settle(20.0)
        assert crashes
        placed = await made.pods()
        assert sorted(placed) == ["p", "poison", "q"]
        assert all(placed.values())
        assert scheduler.cache.assumed_count == 0
        assert scheduler.cache.pod_count == 3
        assert len(scheduler.queue) == 0


@pytest.mark.parametrize("field", ["binders", "binding_group", "backlog", "slice_pods"])
def test_settings_that_cannot_work_are_refused(field: str) -> None:
    options: dict[str, Any] = {field: 0}
    with pytest.raises(ValueError, match=field):
        SchedulerConfig(**options)


def test_a_pod_document_of_the_builders_is_what_the_server_takes() -> None:
    assert builders.pod("p").spec.containers[0].command


async def test_affinity_holds_and_a_leaving_pod_wakes_the_next(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """One a node: the third waits, shows why, and takes the place of the first that goes."""
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", "b")
        alone = [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": "db"}},
            }
        ]
        rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": alone}}
        await made.start_scheduler()
        await made.add_pods("p0", "p1", "p2", labels={"app": "db"}, affinity=rules)
        await made.settle()
        placed = await made.pods()
        assert sorted(placed.values()) == ["", "a", "b"]
        (waiting,) = [name for name, node in placed.items() if not node]
        assert await made.message(waiting) == (
            "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."
            " preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
        )
        gone = "p0" if placed["p0"] else "p1"
        await made.delete(gone)
        await made.settle()
        assert (await made.pods())[waiting] == placed[gone]


async def test_a_label_of_a_namespace_can_bring_company(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", "b")
        near = [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": "db"}},
                "namespaceSelector": {"matchLabels": {"team": "x"}},
            }
        ]
        rules = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": near}}
        await made.start_scheduler()
        await made.add_pods("db", labels={"app": "db"}, nodeName="b")
        await made.add_pods("web", affinity=rules)
        await made.settle()
        assert "didn't match pod affinity rules" in await made.message("web")
        patch = {"metadata": {"labels": {"team": "x"}}}
        await made.client.patch(NAMESPACE, "default", patch=patch)
        await made.settle()
        assert (await made.pods())["web"] == "b"


async def test_attempts_are_kept_and_explained(clock: Clock, rng: Stream, log: Logger) -> None:
    """From the first refusal to the node, and gone with the pod."""
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity=SMALL)
        scheduler = await made.start_scheduler()
        await made.add_pods("big", requests={"cpu": "2"})
        await made.settle()
        answer = scheduler.explain(await made.pod("big"))
        assert answer is not None
        assert [item.text for item in answer.changes] == ["if cpu ≤ 1"]
        await made.add_nodes("b", capacity={**SMALL, "cpu": "4"})
        await made.settle(5.0)
        answer = scheduler.explain(await made.pod("big"))
        assert answer is not None
        assert (answer.state, answer.node) == ("Placed", "b")
        assert [item.result for item in answer.attempts] == ["unschedulable", "scheduled"]
        assert answer.attempts[1].score >= 0
        uid = (await made.pod("big")).metadata.uid
        await made.delete("big")
        await made.settle()
        assert scheduler._history.of(uid) == []


async def test_metrics_count_pods_that_wait(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity=SMALL)
        await made.start_scheduler()
        await made.add_pods("big", "bigger", requests={"cpu": "2"})
        await made.settle()
        waiting = {"pool": "unschedulable"}
        assert made.registry.get_sample_value("grange_scheduler_pending_pods", waiting) == 2
        await made.delete("big")
        await made.settle()
        assert made.registry.get_sample_value("grange_scheduler_pending_pods", waiting) == 1


async def test_only_a_scheduler_at_work_explains(clock: Clock, rng: Stream, log: Logger) -> None:
    """One that waits for its turn in a farm has not even heard of the pods."""
    async with world(clock, rng, log) as made:
        await made.add_pods("p")
        client = made.client
        informers = InformerFactory(client, clock=clock, rng=rng, log=log)
        idle = Scheduler(Deps(client, informers, clock, rng, log, registry()))
        with pytest.raises(SchedulerNotRunning, match="another"):
            idle.explain(await made.pod("p"))
