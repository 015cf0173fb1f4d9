"""What a machine needs next, by its record, its instance and its node."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from grange.api import timestamps
from grange.api.kinds.machine import Machine
from grange.api.kinds.machinelease import MACHINE_LEASE
from grange.api.kinds.node import NodeAddress
from grange.api.kinds.nodepool import DEDICATED, WIPE, NodePoolSpec, PoolTimeouts
from grange.api.kinds.pod import Pod
from grange.api.machine_phases import TRANSITIONS, MachineEvent, MachinePhase
from grange.machines.controller.machine_holder import HolderState, holder_state
from grange.machines.controller.machine_lifecycle import (
    BOOTING,
    CLOSED_S,
    JOINING,
    SWITCHING_OFF,
    MachineInputs,
    MachineStep,
    NextStep,
    boot_seconds,
    next_step,
)
from grange.machines.controller.node_controller_config import (
    ContradictoryIntervals,
    NodeControllerConfig,
)
from grange.machines.providers.provider import Instance, InstanceState
from grange.sim import builders

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POOL = NodePoolSpec(provider="simulated")
P, E, S = MachinePhase, MachineEvent, MachineStep
LIVE = [phase for phase in P if phase not in {P.TERMINATING, P.TERMINATED}]


def machine(phase: MachinePhase, *, terminate: bool = False, **status: Any) -> Machine:
    document = {
        "metadata": {"name": "m", "uid": "u-m", "resourceVersion": "1"},
        "spec": {"pool": "p", "provider": "simulated", "terminate": terminate},
        "status": {"phase": phase.value, **status},
    }
    return msgspec.convert(document, Machine)


def at(seconds_ago: float) -> str:
    return timestamps.rfc3339(NOW - timedelta(seconds=seconds_ago))


def instance(state: InstanceState = InstanceState.RUNNING) -> Instance:
    return Instance("i-1", "m", state)


def step(found: Machine, pool: NodePoolSpec = POOL, **known: Any) -> NextStep:
    return next_step(MachineInputs(found, pool, **known), NOW)


def moved(found: NextStep) -> MachineEvent | None:
    assert found.step is S.MOVE
    assert found.reason
    assert found.message
    return found.event


def test_a_launch_is_recorded_before_it_is_made() -> None:
    assert step(machine(P.CREATING)).step is S.RECORD_LAUNCH
    assert step(machine(P.CREATING, launchTime=at(0))).step is S.LAUNCH


def test_an_unanswered_launch_is_found_by_its_token() -> None:
    """After a restart the instance is adopted; nothing is launched."""
    found = step(machine(P.CREATING, launchTime=at(5)), instance=instance())
    assert moved(found) is E.LAUNCHED


def test_f39_a_boot_that_takes_too_long_ends() -> None:
    for phase in (P.CREATING, P.CREATED):
        late = machine(phase, launchTime=at(301), lastError="no capacity")
        found = step(late)
        assert moved(found) is E.END
        assert "no capacity" in found.message


def test_the_deadline_counts_from_launch_and_by_type() -> None:
    timeouts = PoolTimeouts(boot_seconds_by_type={"mac*": 1200, "*": 60})
    pool = NodePoolSpec(timeouts=timeouts)
    mac = machine(P.CREATED, launchTime=at(301), instanceType="mac2")
    assert boot_seconds(mac, timeouts) == 1200
    assert step(mac, pool).step is not S.MOVE
    small = machine(P.CREATED, launchTime=at(61), instanceType="small")
    assert moved(step(small, pool)) is E.END


def test_f48_a_ready_node_of_its_own_makes_it_available() -> None:
    booted = machine(P.CREATED, launchTime=at(5), instanceID="i-1")
    node = builders.node("m")
    assert step(booted, node=node).step is S.INITIALIZE
    assert moved(step(booted, node=node, initialized=True)) is E.JOINED


def test_a_node_of_another_instance_does_not_count() -> None:
    booted = machine(P.CREATED, launchTime=at(5), instanceID="i-1")
    document = builders.node_document("m")
    document["spec"]["providerID"] = "aws:///a/i-2"
    other = msgspec.convert(document, type(builders.node("m")))
    foreign = builders.node("m", labels={"grange.dev/node-pool": "q"})
    for node in (other, foreign):
        assert step(booted, node=node, initialized=True).step is not S.MOVE


def test_a_boot_shows_its_stage_and_addresses() -> None:
    booted = machine(P.CREATED, launchTime=at(5), stage=BOOTING)
    address = NodeAddress(type="InternalIP", address="10.0.0.1")
    runs = Instance("i-1", "m", InstanceState.RUNNING, addresses=(address,))
    found = step(booted, instance=runs)
    assert (found.step, found.stage) == (S.UPDATE, JOINING)
    waits = step(booted, instance=instance(InstanceState.PENDING))
    assert (waits.step, waits.after_s) == (S.WAIT, 5.0)


@pytest.mark.parametrize("phase", [P.AVAILABLE, P.CLAIMED])
def test_addresses_that_a_later_list_shows_are_written(phase: MachinePhase) -> None:
    """The node was ready before the list."""
    address = NodeAddress(type="InternalIP", address="10.0.0.1")
    shown = replace(instance(), addresses=(address,))
    joined = machine(phase, launchTime=at(1), boundPodUID="u")
    assert step(joined, instance=instance()).step is S.WAIT
    assert step(joined, instance=shown).step is S.UPDATE
    known = [{"type": "InternalIP", "address": "10.0.0.1"}]
    assert step(machine(phase, addresses=known), instance=shown).step is S.WAIT


def test_addresses_that_a_list_lacks_are_kept() -> None:
    """Else a machine that is switched on again would be written over and over."""
    known = [{"type": "InternalIP", "address": "10.0.0.1"}]
    booting = machine(P.CREATED, launchTime=at(1), stage="Booting", addresses=known)
    assert step(booting, instance=instance(InstanceState.PENDING)).step is S.WAIT


def test_looks_at_a_boot_keep_the_pause_of_the_pool() -> None:
    pool = NodePoolSpec(
        provider="simulated", timeouts=PoolTimeouts(boot_seconds=60, healthcheck_pause_seconds=7)
    )
    for age_s, pause_s in ((5, 7.0), (58, 2.0)):  # the last look is at the deadline
        boots = machine(P.CREATED, launchTime=at(age_s), stage=BOOTING)
        found = step(boots, pool, instance=instance(InstanceState.PENDING))
        assert (found.step, found.after_s) == (S.WAIT, pause_s)


def test_defaults_are_those_of_the_seed() -> None:
    limits = POOL.timeouts
    assert (limits.boot_seconds, limits.healthy_seconds) == (300, 90)
    assert (limits.healthcheck_pause_seconds, POOL.max_boot_per_iteration) == (5, 10)


@pytest.mark.parametrize("phase", LIVE)
def test_terminate_ends_it_in_every_phase(phase: MachinePhase) -> None:
    assert moved(step(machine(phase, terminate=True), instance=instance())) is E.END


@pytest.mark.parametrize("phase", [phase for phase in LIVE if phase is not P.CREATING])
def test_a_lost_instance_is_noticed_in_every_phase(phase: MachinePhase) -> None:
    assert moved(step(machine(phase), missing=True)) is E.GONE


def test_a_launch_without_instance_is_repeated_not_lost() -> None:
    """Lists lag: an instance that is not listed yet is no evidence against its launch."""
    assert step(machine(P.CREATING, launchTime=at(5)), missing=True).step is S.LAUNCH


def test_a_stop_is_repeated_until_the_instance_is_gone() -> None:
    ending = machine(P.TERMINATING, instanceID="i-1")
    assert step(ending, instance=instance()).step is S.TERMINATE
    assert step(ending).step is S.LOOK
    assert moved(step(ending, missing=True)) is E.GONE


def test_a_late_launch_of_an_ended_machine_is_ended() -> None:
    assert step(machine(P.TERMINATED, instanceID="i-1"), instance=instance()).step is S.TERMINATE


def test_f37_the_record_of_an_ended_machine_goes_last() -> None:
    def ended(age_s: float) -> Machine:
        entry = {"time": at(age_s), "phase": "Terminated"}
        return machine(P.TERMINATED, history=[entry])

    assert step(ended(5), missing=True, node=builders.node("m")).step is S.DELETE_NODE
    waits = step(ended(5), missing=True)
    assert (waits.step, waits.after_s) == (S.WAIT, 55.0)
    assert step(ended(60)).step is S.WAIT  # not known to be gone
    assert step(ended(60), missing=True).step is S.DELETE_RECORD


def test_a_used_machine_is_never_available_by_a_restart() -> None:
    used = machine(P.CLEANING)
    ready: dict[str, Any] = {
        "node": builders.node("m"),
        "initialized": True,
        "instance": instance(),
    }
    assert moved(step(used, **ready)) is E.END
    wipes = NodePoolSpec(cleaning=WIPE)
    assert step(used, wipes, can_wipe=True, pods=True, **ready).step is S.WAIT
    assert step(used, wipes, can_wipe=True, **ready).step is S.WIPE
    assert moved(step(used, wipes, can_wipe=False, **ready)) is E.END


def test_f80_a_claim_whose_pod_is_gone_is_returned() -> None:
    claimed = machine(P.CLAIMED, boundPodName="default/a", boundPodUID="u")
    assert step(claimed).step is S.WAIT
    assert moved(step(claimed, holder=HolderState(gone=True))) is E.RETURNED_USED
    assert moved(step(claimed, holder=HolderState(gone=True, used=False))) is E.RETURNED_UNUSED
    assert (
        moved(step(claimed, holder=HolderState(gone=True, used=False), pods=True))
        is E.RETURNED_USED
    )


@pytest.mark.parametrize("phase", [P.AVAILABLE, P.CLAIMED])
@pytest.mark.parametrize("state", [InstanceState.STOPPED, InstanceState.STOPPING])
def test_machine_in_service_is_switched_on_again(phase: MachinePhase, state: InstanceState) -> None:
    found = machine(phase)
    assert step(found, instance=instance(state), can_stop=True).step is S.START
    assert step(found, instance=instance(state)).step is S.WAIT
    assert step(found, instance=instance(), can_stop=True).step is S.WAIT


def test_ending_pod_keeps_its_machine_for_its_grace() -> None:
    def state(deleted_s_ago: float | None = None, *, ready: bool = True, **pod: Any) -> HolderState:
        document = builders.pod_document("a", **pod)
        if deleted_s_ago is not None:
            document["metadata"]["deletionTimestamp"] = at(deleted_s_ago)
        return holder_state(msgspec.convert(document, Pod), "m", NOW, ready=ready)

    assert holder_state(None, "m", NOW, ready=True) == HolderState(gone=True)
    assert state(nodeName="m") == HolderState()
    assert state(nodeName="other") == HolderState(gone=True, used=False)
    ending = state(-30.0, nodeName="m")  # its time ends in 30 s
    assert ending == HolderState(until=NOW + timedelta(seconds=90))
    claimed = machine(P.CLAIMED, boundPodName="default/a", boundPodUID="u")
    assert step(claimed, holder=ending) == NextStep(S.WAIT, after_s=90.0)
    for over in (state(60.0, nodeName="m"), state(-30.0, nodeName="m", ready=False)):
        assert over == HolderState(gone=True)
    assert state(-30.0) == HolderState(gone=True, used=False)  # it was never on the node


def test_an_end_is_over_when_a_later_list_shows_no_instance() -> None:
    ending = machine(P.TERMINATING)
    named = machine(P.TERMINATING, instanceID="i-1")
    assert step(named, ended=True, instance=instance()).step is S.TERMINATE
    assert step(ending).step is S.LOOK
    assert moved(step(ending, ended=True)) is E.GONE
    # A list may lag: the record stays until two lists apart agree.
    assert step(machine(P.TERMINATED), ended=True).step is S.WAIT
    late = machine(P.TERMINATED, instanceID="i-1")
    assert step(late, ended=True, instance=instance()).step is S.TERMINATE


@pytest.mark.parametrize("phase", [P.TERMINATING, P.TERMINATED])
def test_unknown_instance_is_recorded_before_it_is_ended(phase: MachinePhase) -> None:
    """It was launched without an answer; the node that it registers is found by its id."""
    assert step(machine(phase), instance=instance()).step is S.UPDATE


def test_standby_is_switched_off_and_on_again() -> None:
    parking, alone = machine(P.STOPPING), NodePoolSpec(provider="simulated", mode=DEDICATED)
    assert step(parking, alone, instance=instance()).step is S.STOP
    assert step(parking, instance=instance(InstanceState.STOPPING)).step is S.WAIT
    assert moved(step(parking, instance=instance(InstanceState.STOPPED))) is E.PARKED
    assert step(machine(P.STOPPED), instance=instance(InstanceState.STOPPED)).step is S.WAIT
    resumed = machine(P.CREATED, launchTime=at(1))
    assert step(resumed, instance=instance(InstanceState.STOPPED)).step is S.START


def test_node_is_closed_before_a_shared_machine_is_switched_off() -> None:
    parking, node = machine(P.STOPPING), builders.node("m")
    facts: dict[str, Any] = {"instance": instance(), "node": node}
    assert step(parking, **facts).step is S.CLOSE
    waits = step(parking, **facts, closed=NOW - timedelta(seconds=5))
    assert (waits.step, waits.after_s) == (S.WAIT, CLOSED_S - 5)
    closed = NOW - timedelta(seconds=CLOSED_S)
    decided = step(parking, **facts, closed=closed)
    assert (decided.step, decided.stage) == (S.UPDATE, SWITCHING_OFF)
    off = machine(P.STOPPING, stage=SWITCHING_OFF)
    assert step(off, **facts, closed=closed).step is S.STOP
    # Once the provider is asked, the machine comes back by being switched on.
    assert step(off, **facts, closed=closed, pods=True).step is S.STOP
    assert moved(step(machine(P.STOPPED), pods=True)) is E.RESUMED


def test_machine_in_use_is_not_switched_off() -> None:
    parking, leased = machine(P.STOPPING), builders.node("m", labels={MACHINE_LEASE: "u"})
    assert moved(step(parking, node=builders.node("m"), pods=True, closed=NOW)) is E.RESUMED
    assert moved(step(parking, node=leased, closed=NOW - timedelta(hours=1))) is E.RESUMED


def test_every_event_is_allowed_where_it_is_decided() -> None:
    for phase in P:
        for given in (None, *map(instance, InstanceState)):
            for flags in range(32):
                found = step(
                    machine(phase, terminate=bool(flags & 1), launchTime=at(301)),
                    instance=given,
                    missing=given is None and bool(flags & 2),
                    holder=HolderState(gone=bool(flags & 4), used=bool(flags & 8)),
                    pods=bool(flags & 16),
                    node=builders.node("m"),
                )
                if found.event is not None:
                    assert (phase, found.event) in TRANSITIONS


def test_intervals_that_contradict_are_refused() -> None:
    assert NodeControllerConfig().pool_interval_s > NodeControllerConfig().heartbeat_interval_s
    with pytest.raises(ContradictoryIntervals, match="pool_interval_s: 7 s"):
        NodeControllerConfig(pool_interval_s=7.0)
    with pytest.raises(ContradictoryIntervals, match="heartbeat_interval_s"):
        NodeControllerConfig(heartbeat_interval_s=0.0)
    with pytest.raises(ContradictoryIntervals, match="unhealthy_share"):
        NodeControllerConfig(unhealthy_share=1.2)
