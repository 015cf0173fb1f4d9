"""Decisions about one controller. Numbers R… and W… are those of the checks in the specification
of replication: R is behaviour to keep, W a weakness of the ancestor that must not come back.

P2 writes intents on nodes; here a pod is created, pinned to its node and bound by the scheduler. Audit
records are in test_replication_audit. An alert is the InsufficientNodes condition (and an event).
"""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.controllers import builders

from grange.api.kinds.pod import Pod
from grange.api.kinds.podgroup import GROUP_LABEL
from grange.api.kinds.queue import QUEUE_LABEL
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.rollouts import RolloutLimits
from grange.controllers.replication import logic
from grange.controllers.replication.plan import Addition, InvalidController, Plan, Sides
from grange.controllers.replication.pod_control import sort_by_owner
from grange.controllers.shared import deletion_order, pod_identity

OTHER = {**builders.TEMPLATE, "metadata": {"labels": {"app": "other"}}}


def decide(
    owner: ReplicationController,
    owned: Sequence[Pod] = (),
    eligible: Sequence[str] = (),
    **rest: Any,
) -> Plan:
    return logic.plan(builders.inputs(owner, owned, eligible, **rest))


def created(plan: Plan) -> list[str]:
    return [addition.node for addition in plan.create]


def deleted(plan: Plan) -> list[str]:
    return [removal.pod.metadata.name for removal in plan.delete]


def on_nodes(owner: ReplicationController, *nodes: str) -> list[Pod]:
    return [builders.pod(owner, node=node) for node in nodes]


# --- how many and where ------------------------------------------------------------------------


def test_r1_nothing_wanted_and_no_nodes_is_nothing_to_do() -> None:
    assert decide(builders.controller(replicas=0)) == Plan()


def test_r2_one_wanted_and_no_eligible_node_is_one_short() -> None:
    plan = decide(builders.controller(replicas=1))
    assert plan.create == ()
    assert plan.short == 1


def test_r3_only_the_eligible_node_gets_a_pod() -> None:
    plan = decide(builders.controller(replicas=1), eligible=["b"])
    assert plan.create == (Addition("web-b", "b"),)
    assert plan.short == 0


def test_r4_two_wanted_one_eligible_places_one_and_is_one_short() -> None:
    plan = decide(builders.controller(replicas=2), eligible=["a"])
    assert created(plan) == ["a"]
    assert plan.short == 1


@pytest.mark.parametrize("replicas", [-1, 100_001, 2**31 - 1])
def test_r5_negative_replicas_are_refused_and_touch_nothing(replicas: int) -> None:
    """P2 removed every pod and then reported an error; here only the error remains.

    Two thousand million were counted one by one, and nothing else ran meanwhile.
    """
    owner = builders.controller(replicas=replicas)
    with pytest.raises(InvalidController, match=r"spec\.replicas"):
        decide(owner, on_nodes(owner, "a", "b"), ["a", "b"])


def test_r6_growing_keeps_the_first_pod_and_uses_the_other_node() -> None:
    owner = builders.controller(replicas=2)
    plan = decide(owner, on_nodes(owner, "a"), ["a", "b"])
    assert created(plan) == ["b"]
    assert plan.delete == ()
    assert plan.short == 0


def test_r7_shrinking_to_zero_removes_the_pod() -> None:
    owner = builders.controller(replicas=0)
    assert deleted(decide(owner, on_nodes(owner, "a"), ["a"])) == ["web-a"]


def test_r8_of_thousand_pods_only_the_ineligible_one_goes() -> None:
    nodes = [f"n{index:04}" for index in range(1000)]
    owner = builders.controller(replicas=999)
    plan = decide(owner, on_nodes(owner, *nodes), [n for n in nodes if n != "n0417"])
    assert deleted(plan) == ["web-n0417"]


def test_r9_scaling_to_seven_and_back_crosses_every_batch() -> None:
    nodes = [f"n{index}" for index in range(7)]
    owner = builders.controller(replicas=7)
    assert created(decide(owner, eligible=nodes)) == nodes
    none = builders.controller(replicas=0)
    assert sorted(deleted(decide(none, on_nodes(none, *nodes), nodes))) == sorted(
        f"web-{node}" for node in nodes
    )


def test_r15_static_members_stay_when_their_node_is_ineligible() -> None:
    owner = builders.controller(replicas=1)
    assert decide(owner, on_nodes(owner, "a"), ["b"]) == Plan()


def test_r16_adding_five_to_nothing_places_five() -> None:
    assert len(decide(builders.controller(replicas=5), eligible=list("abcde")).create) == 5


def test_r17_r19_paused_controller_changes_nothing() -> None:
    assert decide(builders.controller(replicas=5, paused=True), eligible=list("abcde")).create == ()
    owner = builders.controller(replicas=3, paused=True)
    stripped = builders.pod(owner, node="a", labels={})
    assert decide(owner, [stripped, *on_nodes(owner, *"bcde")], list("abcde")) == Plan()


def test_r18_shrinking_from_five_to_three_leaves_three() -> None:
    owner = builders.controller(replicas=3)
    assert len(decide(owner, on_nodes(owner, *"abcde"), list("abcde")).delete) == 2


def test_additions_go_to_nodes_in_order_of_name() -> None:
    """Users rely on knowing where the next pod goes."""
    owner = builders.controller(replicas=3)
    plan = decide(owner, on_nodes(owner, "c"), ["d", "b", "a", "c"])
    assert created(plan) == ["a", "b"]


def test_a_controller_being_deleted_is_left_alone() -> None:
    owner = builders.controller(replicas=3, deleted=True)
    assert decide(owner, [], ["a"]) == Plan()


def test_an_unknown_placement_is_refused() -> None:
    with pytest.raises(InvalidController, match=r"spec\.placement"):
        decide(builders.controller(placement="Everywhere"))


# --- one per node ------------------------------------------------------------------------------


def test_a_terminating_pod_holds_its_node_but_not_its_place() -> None:
    owner = builders.controller(replicas=2)
    owned = [builders.pod(owner, node="a", deleted=True), builders.pod(owner, node="b")]
    assert created(decide(owner, owned, ["a", "b", "c"])) == ["c"]


def test_waiting_for_a_terminating_pod_is_not_a_shortage() -> None:
    owner = builders.controller(replicas=2)
    owned = [builders.pod(owner, node="a", deleted=True), builders.pod(owner, node="b")]
    plan = decide(owner, owned, ["a", "b"])
    assert plan.create == ()
    assert plan.short == 0
    assert plan.scaling


def test_a_terminating_pod_on_an_ineligible_node_is_a_shortage() -> None:
    owner = builders.controller(replicas=2)
    owned = [builders.pod(owner, node="a", deleted=True), builders.pod(owner, node="b")]
    assert decide(owner, owned, ["b"]).short == 1


def test_two_pods_on_one_node_leave_the_better() -> None:
    owner = builders.controller(replicas=2)
    owned = [
        builders.pod(owner, node="a", name="old-a", ready=True),
        builders.pod(owner, node="a", name="new-a", ready=False),
        builders.pod(owner, node="b"),
    ]
    plan = decide(owner, owned, ["a", "b"])
    assert deleted(plan) == ["new-a"]
    assert plan.create == ()


def test_unbound_pod_on_ineligible_node_moves_to_a_spare_one() -> None:
    """It runs nowhere, so moving it breaks no promise and loses nothing."""
    owner = builders.controller(replicas=1)
    stranded = builders.pod(owner, node="a", bound=False)
    plan = decide(owner, [stranded], ["b"])
    assert deleted(plan) == ["web-a"]
    assert created(plan) == ["b"]


def test_an_unbound_pod_stays_where_it_is_without_a_spare_node() -> None:
    owner = builders.controller(replicas=2)
    stranded = builders.pod(owner, node="a", bound=False)
    plan = decide(owner, [stranded], ["b"])
    assert plan.delete == ()
    assert created(plan) == ["b"]
    assert plan.short == 1


def test_a_name_held_by_another_owner_is_avoided() -> None:
    owner = builders.controller(replicas=1)
    plan = decide(owner, [], ["a"], taken=frozenset({"web-a"}))
    assert created(plan) == ["a"]
    assert plan.create[0].name != "web-a"


# --- packed ------------------------------------------------------------------------------------


def test_packed_pods_take_the_smallest_free_ordinals() -> None:
    owner = builders.controller(replicas=4, placement="Packed")
    owned = [builders.pod(owner, name="web-1", node="a")]
    plan = decide(owner, owned, ["a"], taken=frozenset({"web-2"}))
    assert plan.create == tuple(Addition(f"web-{n}") for n in (0, 3, 4))


def test_packed_pods_without_eligible_node_are_made_and_reported() -> None:
    """The scheduler reports on each pod why it waits; the controller reports that there is no node."""
    plan = decide(builders.controller(replicas=2, placement="Packed"))
    assert len(plan.create) == 2
    assert plan.short == 2


def test_packed_removal_takes_from_the_fullest_node_first() -> None:
    owner = builders.controller(replicas=2, placement="Packed")
    owned = [
        builders.pod(owner, name="web-0", node="a"),
        builders.pod(owner, name="web-1", node="b"),
        builders.pod(owner, name="web-2", node="b"),
    ]
    assert deleted(decide(owner, owned, ["a", "b"])) == ["web-2"]


# --- pods that ended, changed or drifted --------------------------------------------------------


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_finished_pod_is_replaced_on_its_node_in_one_pass(phase: str) -> None:
    owner = builders.controller(replicas=1)
    plan = decide(owner, [builders.pod(owner, node="a", phase=phase)], ["a"])
    assert deleted(plan) == ["web-a"]
    assert created(plan) == ["a"]


def test_a_finished_pod_that_is_held_keeps_its_place() -> None:
    """A pod that fails at once must not be made again in a tight loop."""
    owner = builders.controller(replicas=1)
    failed = builders.pod(owner, node="a", phase="Failed")
    plan = decide(owner, [failed], ["a", "b"], held=frozenset({failed.metadata.uid}))
    assert plan.create == ()
    assert plan.delete == ()


def test_held_places_go_first_when_shrinking() -> None:
    owner = builders.controller(replicas=1)
    failed = builders.pod(owner, node="a", phase="Failed")
    owned = [failed, builders.pod(owner, node="b", ready=False)]
    plan = decide(owner, owned, ["a", "b"], held=frozenset({failed.metadata.uid}))
    assert deleted(plan) == ["web-a"]


def test_changed_template_replaces_waiting_pods_keeps_running() -> None:
    """W11: an edit of the template must never restart the fleet at once."""
    before = builders.controller(replicas=2)
    owned = [builders.pod(before, node="a"), builders.pod(before, node="b", bound=False)]
    after = builders.controller(replicas=2, template={"spec": {"containers": []}})
    plan = decide(after, owned, ["a", "b", "c"])
    assert deleted(plan) == ["web-b"]
    assert created(plan) == ["b"]


def test_a_changed_node_selector_replaces_waiting_packed_pods() -> None:
    before = builders.controller(replicas=1, placement="Packed")
    waiting = builders.pod(before, name="web-0")
    after = builders.controller(
        replicas=1, placement="Packed", nodeSelector={"matchLabels": {"disk": "ssd"}}
    )
    plan = decide(after, [waiting], ["a"])
    assert deleted(plan) == ["web-0"]
    assert len(plan.create) == 1


def test_rollout_counts_each_template_and_makes_what_is_missing() -> None:
    before = builders.controller(replicas=3)
    owner = builders.controller(replicas=3, template=OTHER)
    owned = [*on_nodes(before, "a", "b"), *on_nodes(owner, "c")]
    sides = Sides(new=2, old=2, source=before)
    plan = decide(owner, owned[1:], list("abcd"), sides=sides)
    assert plan.create == (Addition("web-a", "a"), Addition("web-d", "d", before))
    assert decide(owner, owned, list("abcd"), sides=sides).create == (Addition("web-d", "d"),)


def test_rollout_takes_old_pods_by_rank_while_enough_available() -> None:
    before = builders.controller(replicas=4)
    owner = builders.controller(replicas=4, template=OTHER)
    sick = builders.pod(before, node="d", ready=False)
    owned = [*on_nodes(before, *"abc"), sick]
    gone = Sides(new=0, old=0)
    for minimum, names in ((4, ["web-d"]), (3, ["web-d"]), (2, ["web-d", "web-c"])):
        limits = RolloutLimits(minimum, 4)
        assert deleted(decide(owner, owned, list("abcd"), sides=gone, limits=limits)) == names


def test_dead_old_pods_are_not_remade_without_a_good_template() -> None:
    owner = builders.controller(replicas=3, template=OTHER)
    owned = on_nodes(builders.controller(replicas=3), "a")
    plan = decide(owner, owned, list("abc"), sides=Sides(new=0, old=2))
    assert plan.create == ()


def test_scale_down_takes_ineligible_first_and_keeps_minimum() -> None:
    """One budget for whatever the reason is: the unready one goes although its node is fine."""
    owner = builders.controller(replicas=2)
    owned = [*on_nodes(owner, "a", "b"), builders.pod(owner, node="c", ready=False)]
    assert deleted(decide(owner, owned, ["b", "c"])) == ["web-c"]


def test_w14_silent_pod_goes_only_while_the_minimum_holds() -> None:
    """When every node is out of sight its pods may well be serving."""
    before = builders.controller(replicas=3)
    owner = builders.controller(replicas=3, template=OTHER, rollout={"maxUnavailable": 1})
    unbound = builders.pod(before, node="z", name="web-z", bound=False)
    owned = [*on_nodes(before, "a", "b", "c"), unbound]
    gone = Sides(new=0, old=1)
    everywhere = frozenset("abc")
    assert deleted(decide(owner, owned, [], sides=gone, down=everywhere)) == ["web-z"]
    plan = decide(owner, owned[:3], ["a", "b"], sides=gone, down=frozenset("c"))
    assert deleted(plan) == ["web-c"]


def test_pods_on_their_way_out_have_been_paid_for() -> None:
    """An eviction uses up the budget like anything else."""
    before = builders.controller(replicas=3)
    owner = builders.controller(replicas=3, template=OTHER, rollout={"maxUnavailable": 1})
    evicted = builders.pod(before, node="a", deleted=True)
    owned = [evicted, *on_nodes(before, "b", "c")]
    plan = decide(owner, owned, list("abc"), sides=Sides(new=0, old=1))
    assert plan.delete == ()


def test_a_second_pod_on_a_node_stays_until_others_are_available() -> None:
    owner = builders.controller(replicas=2)
    twins = [builders.pod(owner, node="a", name=name) for name in ("one", "two")]
    plan = decide(owner, twins, ["a", "b"])
    assert created(plan) == ["b"]
    assert plan.delete == ()
    plan = decide(owner, [*twins, builders.pod(owner, node="b")], ["a", "b"])
    assert deleted(plan) == ["two"]


def test_w12_lost_labels_are_put_back_and_the_pod_stays_ours() -> None:
    """In P2 a pod that lost its label leaked: it ran on and was not counted."""
    owner = builders.controller(replicas=1, podLabels={"tier": "front"})
    stripped = builders.pod(owner, node="a", labels={"tier": "back", "mine": "kept"})
    claim = sort_by_owner(owner, [stripped])
    assert claim.owned == (stripped,)
    plan = decide(owner, claim.owned, ["a"])
    assert plan.create == ()
    assert [dict(repair.labels) for repair in plan.repair] == [
        {"tier": "front", pod_identity.RC_NAME_LABEL: "web", pod_identity.RC_ID_LABEL: "rc-uid"}
    ]


def test_what_a_pod_got_its_node_by_is_not_repaired_any_more() -> None:
    """The server refuses it forever, so a pass that tried would fail forever."""
    before = builders.controller(replicas=3, podLabels={QUEUE_LABEL: "one"})
    owner = builders.controller(
        replicas=3, podLabels={QUEUE_LABEL: "two", GROUP_LABEL: "gang", "tier": "front"}
    )
    owned = [
        builders.pod(before, node="a"),
        builders.pod(before, node="b", bound=False),
        builders.pod(owner, node="c", labels=pod_identity.labels_of(owner) | {QUEUE_LABEL: "one"}),
    ]
    assert {r.pod.metadata.name: dict(r.labels) for r in decide(owner, owned).repair} == {
        "web-a": {"tier": "front"},
        "web-b": {QUEUE_LABEL: "two", GROUP_LABEL: "gang", "tier": "front"},
    }


def test_w10_a_short_controller_still_repairs_and_replaces() -> None:
    """In P2 an error for lack of nodes ended the pass before anything was repaired."""
    owner = builders.controller(replicas=3)
    owned = [
        builders.pod(owner, node="a", labels={}),
        builders.pod(owner, node="b", phase="Failed"),
    ]
    plan = decide(owner, owned, ["a", "b"])
    assert plan.short == 1
    assert len(plan.repair) == 1
    assert deleted(plan) == ["web-b"]
    assert created(plan) == ["b"]


# --- whose pods ---------------------------------------------------------------------------------


def test_claim_adopts_orphans_with_our_label_only() -> None:
    owner = builders.controller()
    orphan = builders.pod(owner, node="a", orphan=True)
    finished = builders.pod(owner, node="b", orphan=True, phase="Failed")
    unmarked = builders.pod(owner, node="c", orphan=True, labels={"app": "web"})
    claim = sort_by_owner(owner, [orphan, finished, unmarked])
    assert claim.adopt == (orphan,)
    assert claim.owned == ()


def test_w8_pod_of_another_controller_is_never_ours() -> None:
    """In P2 the label decided, so a pod taken over in between was removed all the same."""
    owner, other = builders.controller(), builders.controller("other", uid="other-uid")
    theirs = builders.pod(other, node="a", labels=pod_identity.labels_of(owner))
    claim = sort_by_owner(owner, [theirs])
    assert claim.owned == claim.adopt == claim.release == ()


def test_a_pod_of_an_earlier_owner_of_the_name_is_not_ours() -> None:
    """Ownership goes by uid: the pods of a deleted controller of the same name are not counted."""
    before, after = builders.controller(uid="one"), builders.controller(uid="two")
    assert sort_by_owner(after, [builders.pod(before, node="a")]).owned == ()


def test_claim_releases_a_pod_that_was_relabelled_on_purpose() -> None:
    owner = builders.controller()
    taken_out = builders.pod(owner, node="a", labels={pod_identity.RC_NAME_LABEL: "quarantine"})
    claim = sort_by_owner(owner, [taken_out])
    assert claim.release == (taken_out,)
    assert claim.owned == ()


def test_claim_keeps_a_relabelled_pod_that_terminates() -> None:
    """Nothing is gained by releasing it: it is counted until it is gone."""
    owner = builders.controller()
    labels = {pod_identity.RC_NAME_LABEL: "quarantine"}
    terminating = builders.pod(owner, node="a", labels=labels, deleted=True)
    claim = sort_by_owner(owner, [terminating])
    assert (claim.owned, claim.release) == ((terminating,), ())


def test_claim_adopts_nothing_for_a_controller_being_deleted() -> None:
    owner = builders.controller(deleted=True)
    assert sort_by_owner(owner, [builders.pod(owner, node="a", orphan=True)]).adopt == ()


def test_surge_pod_without_a_node_is_not_short() -> None:
    """As many pods are there as are wanted: that more would be made is nothing to alert about."""
    before = builders.controller(replicas=2)
    owner = builders.controller(replicas=2, template=OTHER)
    sides = Sides(new=1, old=2, source=before)
    plan = decide(owner, on_nodes(before, "a", "b"), ["a", "b"], sides=sides)
    assert (plan.create, plan.short) == ((), 0)
    plan = decide(owner, on_nodes(before, "a"), ["a"], sides=sides)
    assert (plan.create, plan.short) == ((), 1)


# --- who goes first -----------------------------------------------------------------------------


def test_w9_victims_are_ranked_and_the_ranking_is_total() -> None:
    """In P2 the victim was whatever a hash set yielded."""
    owner = builders.controller(placement="Packed")

    def member(name: str, node: str = "ok", **facts: Any) -> Pod:
        return builders.pod(owner, name=name, node=node, **facts)

    in_order = [
        member("ineligible", node="bad"),
        member("unbound", node=""),
        member("waiting", phase="Pending", ready=False),
        member("unready", ready=False),
        member("cheap", cost="-5"),
        member("restarted", restarts=3),
        member("crowded", node="full", created="2026-01-01T00:00:00Z"),
        member("alone-young", node="one", created="2026-01-01T00:00:02Z"),
        member("alone-old-z", node="two", created="2026-01-01T00:00:01Z"),
        member("alone-old-a", node="three", created="2026-01-01T00:00:01Z"),
        member("dear", node="four", cost="7"),
    ]
    crowd = [member(f"crowd-{n}", node="full", cost="9") for n in range(9)]
    eligible = {"ok", "full", "one", "two", "three", "four"}
    for given in (in_order + crowd, crowd + in_order[::-1]):
        ranked = [pod.metadata.name for pod in deletion_order.victims(given, eligible)]
        assert [name for name in ranked if not name.startswith("crowd-")] == [
            pod.metadata.name for pod in in_order
        ]


def test_a_deletion_cost_that_is_no_number_counts_as_zero() -> None:
    owner = builders.controller()
    assert deletion_order.deletion_cost(builders.pod(owner, node="a", cost="cheap")) == 0
