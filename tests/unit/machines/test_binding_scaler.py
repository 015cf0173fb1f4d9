"""BindingNodeScaler: numbered checks F1 to F36, worked examples of section 3a, and properties."""

import random
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from tests.unit.machines.scaling import (
    NOW,
    A,
    B,
    bound,
    ended,
    machine,
    plan,
    pod,
    pool,
    started,
    stopped,
)

from grange.api.kinds.machine import Machine
from grange.api.kinds.nodepool import (
    PoolLimits,
    PoolTimeouts,
    PoolVolume,
    StandbyNodeSpec,
)
from grange.api.kinds.pod import Pod
from grange.api.names import check_dns_label
from grange.machines.catalogue import InstanceType
from grange.machines.scaling.binding_scaler import BindingNodeScaler
from grange.machines.scaling.capacity_memory import CapacityMemory
from grange.machines.scaling.pod_needs import PodNeed
from grange.machines.scaling_plan import ScalingPlan

STANDBY = [StandbyNodeSpec("A", 2), StandbyNodeSpec("A", 0)]


def shortage(*markets: bool, zone: str = "") -> CapacityMemory:
    memory = CapacityMemory()
    for spot in markets:
        memory.refuse("A", zone, spot=spot, now=NOW, reason="sold out")
    return memory


def as_machine(found: ScalingPlan, phase: str = "Creating") -> Machine:
    """A machine as the plan's first start orders it."""
    start = found.start[0]
    ordered = machine(start.name, phase=phase)
    return msgspec.structs.replace(ordered, spec=start.spec)


# --- names -----------------------------------------------------------------------------------------


def test_two_plans_of_one_instant_share_no_name() -> None:
    """The machine that was ordered became a pod's at once, so that standby is ordered again."""
    standby = pool([StandbyNodeSpec("A", 1)])
    first = plan(of=standby)
    again = plan([pod("p")], [as_machine(first)], of=standby)
    assert bound(again) == {"p": first.start[0].name}
    assert [one.name for one in again.start] != [one.name for one in first.start]
    assert len(again.start) == 1


# --- matching and creation -------------------------------------------------------------------------


@pytest.mark.parametrize("spot", [False, True])
@pytest.mark.parametrize("policy", ["Never", "Always", "Preferred"])
def test_f1_spot_policy_decides_the_market(policy: str, spot: bool) -> None:
    found = plan([pod("p", spot=policy)], [machine("n", spot=spot)])
    fits = policy == "Preferred" or spot == (policy == "Always")
    assert bound(found) == {"p": "n" if fits else "new"}


@pytest.mark.parametrize(
    "wanted",
    [
        pod("p"),
        pod("p", zone="z1"),
        pod("p", spot="Always"),
        pod("p", private_ip_only="true"),
        pod("p", "", requests={"cpu": "4"}),
        pod("p", "", requests={"cpu": "1"}, dedicated_cpu="true"),
    ],
)
def test_f2_a_machine_ordered_for_a_pod_suits_it(wanted: Pod) -> None:
    ordered = as_machine(plan([wanted]))
    again = plan([wanted], [ordered])
    assert bound(again) == {"p": ordered.metadata.name}
    assert again.start == ()


@pytest.mark.parametrize(
    "given",
    [
        machine("n", zone="z2"),
        machine("n", "B", zone="z1"),
        machine("n", zone="z1", private_ip_only=True),
        machine("n", zone="z1", spot=True),
        machine("n"),
    ],
    ids=["zone", "type", "private address", "market", "no zone"],
)
def test_f3_each_difference_breaks_the_match(given: Machine) -> None:
    assert bound(plan([pod("p", zone="z1")], [given])) == {"p": "new"}
    same = machine("n", zone="z1")
    assert bound(plan([pod("p", zone="z1")], [same])) == {"p": "n"}


def test_f4_a_pod_without_zone_takes_any() -> None:
    assert bound(plan([pod("p")], [machine("n", zone="z2")])) == {"p": "n"}


@pytest.mark.parametrize(
    ("fixed", "asked", "held", "fits"),
    [
        (True, "10Gi", "10Gi", True),
        (True, "", "5Gi", True),
        (True, "10Gi", "5Gi", False),
        (True, "", "10Gi", False),
        (False, "10Gi", "5Gi", True),
        (False, "", "10Gi", True),
    ],
)
def test_f5_disks_match_where_their_size_is_fixed(
    fixed: bool, asked: str, held: str, fits: bool
) -> None:
    wanted = pod("p", volume_size=asked) if asked else pod("p")
    of = pool(volume=PoolVolume("5Gi", fixed_size=fixed))
    found = plan([wanted], [machine("n", volume_size=held)], of=of)
    assert bound(found) == {"p": "n" if fits else "new"}


def test_f6_devices_and_dedicated_processors_break_the_match() -> None:
    with_gpu = InstanceType("G", {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "1"})
    wanted = pod("p", "", requests={"cpu": "1", "nvidia.com/gpu": "1"})
    found = plan([wanted], [machine("n", "B")], catalogue=[A, B, with_gpu])
    assert bound(found) == {"p": "new"}
    assert started(found) == [("G", False)]
    dedicated = pod("p", dedicated_cpu="true")
    assert bound(plan([dedicated], [machine("n")])) == {"p": "new"}
    assert bound(plan([dedicated], [machine("n", dedicated_cpu=True)])) == {"p": "n"}


def test_f7_f8_what_is_ordered_for_a_pod_is_bound_to_it() -> None:
    for policy, spot in (("Never", False), ("Always", True)):
        found = plan([pod("p", spot=policy)])
        (start,) = found.start
        assert start.spec.spot is spot
        assert (start.pod_uid, start.pods) == ("uid-p", ("default/p",))
        assert found.bindings == {"uid-p": start.name}


def test_f9_what_cannot_be_had_is_not_ordered() -> None:
    for memory in (shortage(True), shortage(True, False)):
        found = plan([pod("p", spot="Always")], capacity=memory)
        assert (started(found), bound(found)) == ([], {})
        assert [skip.reason for skip in found.skip] == [
            "instance type A: sold out; tried again at 2026-01-01T12:03:00Z"
        ]


@pytest.mark.parametrize(
    ("fixed", "asked", "ordered"),
    [(False, "10Gi", "5Gi"), (True, "10Gi", "10Gi"), (True, "", "5Gi")],
)
def test_f10_size_of_the_disk(fixed: bool, asked: str, ordered: str) -> None:
    wanted = pod("p", volume_size=asked) if asked else pod("p")
    found = plan([wanted], of=pool(volume=PoolVolume("5Gi", fixed_size=fixed)))
    assert found.start[0].spec.resources.volume_size == ordered


@pytest.mark.parametrize("spot", [False, True])
def test_f11_a_standby_machine_fits_its_entry(spot: bool) -> None:
    of = pool([StandbyNodeSpec("A", 1, spot)])
    ordered = as_machine(plan(of=of))
    settled = plan([], [ordered], of=of)
    assert (settled.start, settled.stop) == ((), ())
    for other in (
        machine("n", "B", spot=spot),
        machine("n", spot=not spot),
        machine("n", spot=spot, volume_size="10Gi"),
        machine("n", spot=spot, private_ip_only=True),
        machine("n", spot=spot, zone="z1"),
    ):
        assert len(plan([], [other], of=of).start) == 1


# --- compute without standby -----------------------------------------------------------------------


def test_f12_nothing_is_needed_for_nothing() -> None:
    found = plan()
    assert (found.start, found.stop, found.bind, found.skip) == ((), (), (), ())


def test_f13_f14_one_pod_gets_one_machine_in_its_zone() -> None:
    assert started(plan([pod("p")])) == [("A", False)]
    found = plan([pod("p", zone="z2")])
    assert found.start[0].spec.placement.zone == "z2"
    assert {offer.zone for offer in found.start[0].spec.candidates} == {"z2"}


def test_f15_different_pods_get_different_machines() -> None:
    assert sorted(started(plan([pod("p"), pod("q", "B")]))) == [("A", False), ("B", False)]


def test_f16_f17_a_machine_serves_one_pod() -> None:
    found = plan([pod("p"), pod("q", created=1)], [machine("n")])
    assert bound(found) == {"p": "n", "q": "new"}
    assert len(found.start) == 1


@pytest.mark.parametrize(
    "nodes",
    [
        [machine("n")],
        [machine("m"), machine("n")],
        [machine("m", "A"), machine("n", "B")],
        [machine("n", bound="vanished")],
        [machine("n", phase="Creating"), machine("m", phase="Created")],
    ],
)
def test_f18_machines_without_pods_end(nodes: list[Machine]) -> None:
    assert sorted(stopped(plan([], nodes))) == sorted(n.metadata.name for n in nodes)


def test_f19_each_pod_gets_its_type() -> None:
    found = plan([pod("p"), pod("q", created=1)], [machine("a", "A"), machine("b", "B")])
    assert started(found) == [("A", False)]
    assert stopped(found) == ["b"]


# --- standby -----------------------------------------------------------------------------------------


def test_f20_standby_is_filled_from_nothing() -> None:
    assert started(plan(of=pool(STANDBY))) == [("A", False)] * 2


def test_f21_standby_is_used_and_filled_in_one_pass() -> None:
    found = plan([pod("p")], [machine("m"), machine("n")], of=pool(STANDBY))
    assert len(found.start) == 1
    assert found.stop == ()
    assert bound(found)["p"] in {"m", "n"}


def test_f22_surplus_beyond_standby_ends() -> None:
    nodes = [machine("k", created=-3), machine("m", created=-2), machine("n", created=-1)]
    assert stopped(plan([], nodes, of=pool(STANDBY))) == ["n"]
    booting = [machine("k", phase="Creating", created=-3), *nodes[1:]]
    assert stopped(plan([], booting, of=pool(STANDBY))) == ["k"]


def test_f23_f24_standby_of_one_type_and_a_pod_of_another() -> None:
    found = plan([pod("p", "B")], [machine("n")], of=pool(STANDBY))
    assert sorted(started(found)) == [("A", False), ("B", False)]
    none = pool([StandbyNodeSpec("A", 0)])
    assert plan(of=none).start == ()
    assert stopped(plan([], [machine("n")], of=none)) == ["n"]


def test_equal_standby_entries_add_up() -> None:
    found = plan(of=pool([StandbyNodeSpec("A", 1), StandbyNodeSpec("A", 2)]))
    assert len(found.start) == 3


def test_standby_that_cannot_be_had_is_not_hammered() -> None:
    found = plan(of=pool(STANDBY), capacity=shortage(False))
    assert found.start == ()
    assert found.skip[0].reason.startswith("standby A: instance type A: sold out")


def test_standby_holds_in_its_windows_only() -> None:
    daily = StandbyNodeSpec("A", 1, schedule="0 11 * * *", duration_seconds=7200)
    assert len(plan(of=pool([daily])).start) == 1  # it is twelve
    past = msgspec.structs.replace(daily, duration_seconds=1800)
    assert plan(of=pool([past])).start == ()


def test_stopped_standby_is_switched_off_and_on() -> None:
    of = pool([StandbyNodeSpec("A", 1, state="Stopped")])
    parked = plan([], [machine("n", version="7")], of=of)
    assert [(stop.name, stop.version, stop.park) for stop in parked.stop] == [("n", "7", True)]
    off = machine("n", phase="Stopped")
    assert plan([], [off], of=of).stop == ()
    needed = plan([pod("p")], [off], of=of)
    assert needed.resume == ("n",)
    assert bound(needed) == {"p": "n"}
    assert len(needed.start) == 1  # the pool is filled again


def outdated(name: str, phase: str = "Available", **metadata: Any) -> Machine:
    """A machine of 31 days, which is a day more than pools allow by default."""
    given = machine(name, phase=phase, created=-31 * 86400.0)
    return msgspec.structs.replace(
        given, metadata=msgspec.structs.replace(given.metadata, **metadata)
    )


@pytest.mark.parametrize(("state", "ready"), [("Booted", "Available"), ("Stopped", "Stopped")])
def test_outdated_standby_stays_until_others_are_ready(state: str, ready: str) -> None:
    of = pool([StandbyNodeSpec("A", 1, state=state)])
    old = outdated("old", ready)
    first = plan([], [old], of=of)
    assert (len(first.start), first.stop) == (1, ())
    waiting = plan([], [old, machine("new", phase="Created")], of=of)
    assert (waiting.start, waiting.stop) == ((), ())
    done = plan([], [old, machine("new", phase=ready)], of=of)
    assert (done.start, stopped(done)) == ((), ["old"])


def test_outdated_standby_stays_without_a_successor() -> None:
    of = pool([StandbyNodeSpec("A", 1)], limits=PoolLimits(machines=1))
    found = plan([], [outdated("old")], of=of)
    assert (found.start, found.stop) == ((), ())
    assert found.skip[0].reason.startswith("standby A: limits.machines")


def test_standby_that_must_not_be_disrupted_stays() -> None:
    kept = outdated("old", annotations={"grange.dev/do-not-disrupt": "true"})
    found = plan([], [kept], of=pool([StandbyNodeSpec("A", 1)]))
    assert (found.start, found.stop) == ((), ())


def test_booting_standby_does_not_expire() -> None:
    found = plan([], [outdated("old", "Created")], of=pool([StandbyNodeSpec("A", 1)]))
    assert (found.start, found.stop) == ((), ())


# --- spot ----------------------------------------------------------------------------------------------


def test_f25_f26_markets_of_orders() -> None:
    assert started(plan([pod("p", spot="Always")])) == [("A", True)]
    mixed = plan([pod("p", spot="Always"), pod("q")])
    assert sorted(started(mixed)) == [("A", False), ("A", True)]


def test_f27_f28_f29_spot_machines_serve_spot_pods() -> None:
    assert plan([pod("p", spot="Always")], [machine("n", spot=True)]).start == ()
    other = plan([pod("p", spot="Always")], [machine("n")])
    assert (started(other), stopped(other)) == ([("A", True)], ["n"])
    two = plan(
        [pod("p", spot="Always"), pod("q", spot="Always")],
        [machine("m", spot=True), machine("n", spot=True)],
    )
    assert (two.start, two.stop) == ((), ())


def test_f30_failed_and_deleted_pods_get_nothing() -> None:
    for lost in (pod("p", phase="Failed"), pod("p", deleted=True), pod("p", phase="Succeeded")):
        assert plan([lost]).start == ()


def test_f31_idle_and_surplus_spot_machines_end() -> None:
    assert stopped(plan([], [machine("n", spot=True)])) == ["n"]
    nodes = [machine("m", spot=True, created=-2), machine("n", spot=True, created=-1)]
    assert stopped(plan([pod("p", spot="Always")], nodes)) == ["n"]


def test_f32_f33_shortage_of_spot_in_a_zone_and_of_a_type() -> None:
    pinned = pod("p", zone="z1", spot="Always")
    assert plan([pinned], capacity=shortage(True, zone="z1")).start == ()
    assert len(plan([pinned], capacity=shortage(True, zone="z2")).start) == 1
    assert plan([pod("p", spot="Always")], capacity=shortage(True)).start == ()


def test_preferred_spot_falls_back_to_on_demand() -> None:
    assert started(plan([pod("p", spot="Preferred")])) == [("A", True)]
    assert started(plan([pod("p", spot="Preferred")], capacity=shortage(True))) == [("A", False)]
    offers = plan([pod("p", spot="Preferred")]).start[0].spec.candidates
    assert [offer.spot for offer in offers] == [True, True, False, False]


# --- bindings ------------------------------------------------------------------------------------------


def test_f34_a_machine_of_a_vanished_pod_serves_another() -> None:
    found = plan([pod("p")], [machine("n", bound="vanished")])
    assert (found.start, found.stop, bound(found)) == ((), (), {"p": "n"})
    assert not found.bind[0].kept
    assert found.unbind == ()


def test_f35_f36_standby_is_refilled_and_rests() -> None:
    nodes = [machine("m"), machine("n")]
    assert len(plan([pod("p")], nodes, of=pool(STANDBY)).start) == 1
    rest = plan([], nodes, of=pool(STANDBY))
    assert (rest.start, rest.stop) == ((), ())


def test_a_machine_on_its_way_is_no_reason_for_another() -> None:
    found = plan([pod("p")], [machine("n", phase="Creating", bound="p")])
    assert (found.start, bound(found)) == ((), {"p": "n"})
    assert found.bind[0].kept


def test_a_booting_machine_goes_to_another_pod() -> None:
    found = plan([pod("q")], [machine("n", phase="Created", bound="p")])
    assert (found.start, found.stop, bound(found)) == ((), (), {"q": "n"})


def test_a_cordoned_machine_serves_nothing_and_stays() -> None:
    found = plan([pod("p")], [machine("n")], cordoned=["n"])
    assert (bound(found), stopped(found), found.unbind) == ({"p": "new"}, [], ())
    found = plan([pod("p")], [machine("n", bound="p")], cordoned=["n"])
    assert (bound(found), stopped(found), found.unbind) == ({"p": "new"}, [], ("n",))


def test_a_cordoned_machine_keeps_its_holder() -> None:
    found = plan([pod("p")], [machine("n", phase="Claimed", bound="p")], cordoned=["n"])
    assert (bound(found), found.start) == ({"p": "n"}, ())


def test_standby_that_is_cordoned_is_replaced() -> None:
    of = pool([StandbyNodeSpec("A", 1)])
    found = plan([], [machine("n")], of=of, cordoned=["n"])
    assert (started(found), found.stop) == ([("A", False)], ())


def test_the_pod_with_a_zone_goes_first() -> None:
    found = plan([pod("q", created=-9), pod("p", zone="z1")], [machine("n", zone="z1")])
    assert bound(found) == {"p": "n", "q": "new"}


def test_a_shortage_forbids_no_match() -> None:
    assert bound(plan([pod("p")], [machine("n")], capacity=shortage(False))) == {"p": "n"}


def test_a_fixed_disk_of_another_size_is_no_match() -> None:
    of = pool(volume=PoolVolume("5Gi", fixed_size=True))
    found = plan([pod("p", volume_size="10Gi")], [machine("n")], of=of)
    assert started(found) == [("A", False)]
    assert stopped(found) == ["n"]


def test_a_pod_has_one_machine() -> None:
    nodes = [machine("m", bound="p", phase="Creating"), machine("n", bound="p")]
    found = plan([pod("p")], nodes)
    assert bound(found) == {"p": "n"}
    assert stopped(found) == ["m"]


def test_a_binding_that_suits_no_longer_is_given_up() -> None:
    found = plan([pod("p", "B")], [machine("n", bound="p")])
    assert bound(found) == {"p": "new"}
    assert stopped(found) == ["n"]


def test_a_claim_that_was_not_finished_counts() -> None:
    found = plan([pod("p")], [machine("n", phase="Claimed", bound="p")])
    assert (found.start, bound(found)) == ((), {"p": "n"})


@pytest.mark.parametrize("phase", ["Claimed", "Cleaning", "Terminating", "Terminated", "Stopping"])
def test_machines_of_other_phases_serve_and_end_nothing(phase: str) -> None:
    found = plan([pod("p")], [machine("n", phase=phase)])
    assert bound(found) == {"p": "new"}
    assert found.stop == ()


def test_a_machine_that_is_to_end_serves_nothing() -> None:
    found = plan([pod("p")], [ended(machine("n"))])
    assert bound(found) == {"p": "new"}
    assert found.stop == ()


def test_an_idle_machine_is_kept_for_its_grace() -> None:
    of = pool(timeouts=PoolTimeouts(idle_seconds=30))
    assert stopped(plan([], [machine("n", created=-29)], of=of)) == []
    assert stopped(plan([], [machine("n", created=-30)], of=of)) == ["n"]
    just_lost = plan([], [machine("n", bound="vanished")], of=of)
    assert (just_lost.unbind, just_lost.stop) == (("n",), ())


# --- requests of others than pods ---------------------------------------------------------------------

REQUEST = PodNeed(pod="ReplicationController default/web", uid="", instance_type="A")


def test_request_gets_a_machine_after_pods_and_before_standby() -> None:
    of = pool([StandbyNodeSpec("A", 1)], limits=PoolLimits(machines=2))
    found = plan([pod("p", "A")], of=of, requested=[REQUEST])
    assert [(start.pods, start.reason) for start in found.start] == [
        (("default/p",), "pod default/p waits"),
        ((), "ReplicationController default/web has asked for it"),
    ]
    (refused,) = found.skip
    assert "standby A: limits.machines" in refused.reason


def test_request_beyond_limits_is_refused_by_name() -> None:
    found = plan(of=pool(limits=PoolLimits(machines=0)), requested=[REQUEST])
    assert (found.start, found.bind) == ((), ())
    assert found.skip[0].reason == (
        "ReplicationController default/web: limits.machines: 0 of 0 are there"
    )


@pytest.mark.parametrize("phase", ["Creating", "Created", "Available"])
def test_free_machine_is_kept_for_a_request(phase: str) -> None:
    nodes = [machine("a", phase=phase, created=-3600), machine("b", "B", created=-3600)]
    found = plan(nodes=nodes, requested=[REQUEST])
    assert (found.start, stopped(found), found.resume) == ((), ["b"], ())


def test_machine_of_a_deleted_pod_is_unbound_for_a_request() -> None:
    found = plan(nodes=[machine("a", bound="gone", created=-3600)], requested=[REQUEST])
    assert (found.start, found.stop, found.unbind) == ((), (), ("a",))


def test_machine_of_another_template_serves_no_request() -> None:
    """It may lack the labels by which its holder chooses nodes."""
    there = machine("a", created=-3600)
    old = msgspec.structs.replace(there.spec, template_hash="old")
    nodes = [msgspec.structs.replace(there, spec=old)]
    scaler = BindingNodeScaler(
        pool(), [A, B], CapacityMemory(), template_hash="new", requested=[REQUEST]
    )
    found = scaler.compute(nodes, [], now=NOW)
    assert (started(found), stopped(found)) == ([("A", False)], ["a"])


def test_stopped_machine_is_resumed_for_a_request() -> None:
    of = pool([StandbyNodeSpec("A", 1, state="Stopped")])
    found = plan(nodes=[machine("a", phase="Stopped")], of=of, requested=[REQUEST])
    assert found.resume == ("a",)
    assert started(found) == [("A", False)]  # standby is refilled


# --- limits, priorities, needs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "count", "reason"),
    [
        (PoolLimits(machines=2), 1, "limits.machines: 2 of 2 are there"),
        (PoolLimits(price_per_hour="0.25"), 1, "limits.pricePerHour: 0.3 would exceed 0.25"),
        (PoolLimits(resources={"cpu": "5"}), 1, "limits.resources[cpu]: 6 would exceed 5"),
    ],
)
def test_limits_bound_what_is_ordered(limits: PoolLimits, count: int, reason: str) -> None:
    standing = machine("n", phase="Claimed")
    standing = msgspec.structs.replace(
        standing, status=msgspec.structs.replace(standing.status, price_per_hour="0.1")
    )
    found = plan([pod("p"), pod("q"), pod("r")], [standing], of=pool(limits=limits))
    assert len(found.start) == count
    assert {skip.reason for skip in found.skip} == {reason}


def test_scarce_machines_go_by_priority_then_age() -> None:
    pods = [pod("old", created=-5), pod("new", created=-1), pod("high", priority=10)]
    assert bound(plan(pods, [machine("n")], of=pool(limits=PoolLimits(machines=1)))) == {
        "high": "n"
    }
    assert bound(plan(pods[:2], [machine("n")], of=pool(limits=PoolLimits(machines=1)))) == {
        "old": "n"
    }


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (pod("p", "Z"), "instance type Z: the pool may not use it or has none"),
        (pod("p", "", requests={"cpu": "99"}), "no instance type of the pool holds cpu 99"),
        (
            pod("p", "", requests={"cpu": "99500m", "memory": "1536Mi"}),
            "no instance type of the pool holds cpu 99500m, memory 1536Mi",
        ),
        (pod("p", zone="z9"), "zone z9: the provider does not offer a fitting type there"),
        (pod("p", spot="Sometimes"), "metadata.annotations[grange.dev/spot]: 'Sometimes' is none"),
        (pod("p", volume_size="big"), "metadata.annotations[grange.dev/volume-size]: 'big'"),
        (pod("p", private_ip_only="yes"), "metadata.annotations[grange.dev/private-ip-only]"),
    ],
)
def test_what_cannot_be_served_has_its_reason(wanted: Pod, reason: str) -> None:
    (skip,) = plan([wanted]).skip
    assert skip.reason.startswith(reason)
    assert "000m" not in skip.reason


def test_the_cheapest_type_that_fits_is_ordered() -> None:
    assert started(plan([pod("p", "", requests={"cpu": "1"})])) == [("A", False)]
    assert started(plan([pod("p", "", requests={"cpu": "3"})])) == [("B", False)]
    assert started(plan([pod("p", "")], of=pool(default_instance_type="B"))) == [("B", False)]


# --- properties ----------------------------------------------------------------------------------------

_PODS = st.lists(
    st.tuples(
        st.sampled_from(["A", "B", ""]),
        st.sampled_from(["", "z1", "z2"]),
        st.sampled_from(["Never", "Always", "Preferred"]),
        st.integers(0, 2),
    ),
    max_size=8,
)
_NODES = st.lists(
    st.tuples(
        st.sampled_from(["A", "B"]),
        st.sampled_from(["Creating", "Created", "Available", "Stopped", "Claimed", "Cleaning"]),
        st.sampled_from(["", "z1", "z2"]),
        st.booleans(),
        st.integers(0, 8),
    ),
    max_size=8,
)


@given(given_pods=_PODS, given_nodes=_NODES, standby=st.integers(0, 2), seed=st.integers(0, 9))
def test_plans_are_one_to_one_and_know_no_order(
    given_pods: list[tuple[str, str, str, int]],
    given_nodes: list[tuple[str, str, str, bool, int]],
    standby: int,
    seed: int,
) -> None:
    pods = [
        pod(f"p{at}", kind, zone=zone, spot=spot, priority=priority)
        for at, (kind, zone, spot, priority) in enumerate(given_pods)
    ]
    nodes = [
        machine(f"n{at}", kind, phase, zone=zone, spot=spot, bound=f"p{owner}" if owner else "")
        for at, (kind, phase, zone, spot, owner) in enumerate(given_nodes)
    ]
    of = pool([StandbyNodeSpec("A", standby)])
    found = plan(pods, nodes, of=of)
    machines = [binding.machine for binding in found.bind]
    served = [binding.pod_uid for binding in found.bind]
    assert len(machines) == len(set(machines))
    assert len(served) == len(set(served))
    assert not set(machines) & {stop.name for stop in found.stop}
    assert len({start.name for start in found.start}) == len(found.start)
    assert {*served} | {skip.pod_uid for skip in found.skip} >= {p.metadata.uid for p in pods}
    shuffled = random.Random(seed)
    shuffled.shuffle(pods)
    shuffled.shuffle(nodes)
    assert plan(pods, nodes, of=of) == found


@given(given_pods=_PODS, standby=st.integers(0, 2))
def test_what_a_plan_orders_is_enough(
    given_pods: list[tuple[str, str, str, int]], standby: int
) -> None:
    """Done as planned, the next pass has nothing to do."""
    pods = [
        pod(f"p{at}", kind, zone=zone, spot=spot, priority=priority)
        for at, (kind, zone, spot, priority) in enumerate(given_pods)
    ]
    of = pool([StandbyNodeSpec("B", standby)])
    scaler = BindingNodeScaler(of, [A, B], CapacityMemory())
    first = scaler.compute([], pods, now=NOW)
    nodes = []
    for start in first.start:
        ordered = machine(start.name, phase="Creating", created=0)
        status = msgspec.structs.replace(ordered.status, bound_pod_uid=start.pod_uid)
        nodes.append(msgspec.structs.replace(ordered, spec=start.spec, status=status))
    second = scaler.compute(nodes, pods, now=NOW + timedelta(seconds=1))
    assert (second.start, second.stop, second.unbind) == ((), (), ())
    assert second.bindings == first.bindings
    assert all(binding.kept for binding in second.bind)


def test_names_of_machines_are_labels() -> None:
    of = pool()
    of = msgspec.structs.replace(
        of, metadata=msgspec.structs.replace(of.metadata, name="a" * 51 + "-" + "b" * 11)
    )
    scaler = BindingNodeScaler(of, [A], CapacityMemory())
    found = scaler.compute([], [], now=NOW)
    assert found.start == ()
    filled = msgspec.structs.replace(of, spec=pool([StandbyNodeSpec("A", 3)]).spec)
    starts = BindingNodeScaler(filled, [A], CapacityMemory()).compute([], [], now=NOW).start
    assert [check_dns_label(start.name) for start in starts] == [None] * 3
    assert len({start.name for start in starts}) == 3
