"""Failures, restarts and limits: checks 44 to 47, 49, 68 and 74 of spec/jobs.md §5."""

from typing import Any

import pytest
from tests.unit.gangjob.job_simulator import (
    JobSimulator,
    batch_job,
    gang_job,
    tf_job,
    workers,
)

from grange.controllers.gangjob import exit_codes
from grange.controllers.gangjob.failure_handling import MOST_COUNTED
from grange.controllers.gangjob.model import (
    CleanPodPolicy,
    ExitCodeMatch,
    FailureAction,
    FailureRule,
    JobModel,
    JobPod,
    JobRole,
    RestartPolicy,
)

WORKER_0, WORKER_1, WORKER_2, WORKER_3 = (f"train-worker-{index}" for index in range(4))


def rule(action: FailureAction, *codes: int, **parts: Any) -> FailureRule:
    match = ExitCodeMatch(frozenset(codes)) if codes else None
    return FailureRule(action, exit_codes=match, **parts)


def with_rules(*rules: FailureRule, replicas: int = 4, **fields: Any) -> JobSimulator:
    return JobSimulator(gang_job(workers(replicas), failure_rules=rules, **fields)).started()


def restarts(world: JobSimulator) -> tuple[int, int, int]:
    status = world.status
    return (status.restarts, status.restarts_towards_max, status.uncharged_restarts)


# --- restart policies ------------------------------------------------------------------------------


def test_check_44_retryable_exit_code_restarts_the_pod() -> None:
    world = JobSimulator(tf_job(worker=4, policy=RestartPolicy.EXIT_CODE)).started()
    world.fail(WORKER_1, code=130)
    plan = world.step()
    assert [item.pod.name for item in plan.delete] == [WORKER_1]
    assert world.phase == "Restarting"
    assert "Worker 1 (pod train-worker-1) failed with exit code 130" in world.message("Restarting")
    world.started()
    assert world.phase == "Running"
    assert world.condition("Restarting") == ""
    assert restarts(world) == (1, 0, 0)


def test_check_44_permanent_exit_code_fails_the_job() -> None:
    world = JobSimulator(tf_job(worker=4, policy=RestartPolicy.EXIT_CODE)).started()
    world.fail(WORKER_2, code=1, reasons=frozenset({"Error"}), message="no data")
    world.step()
    assert (world.phase, world.reason("Failed")) == ("Failed", "TFJobFailed")
    message = world.message("Failed")
    assert message == "Worker 2 (pod train-worker-2) failed with exit code 1 (Error): no data"


@pytest.mark.parametrize(
    ("code", "retryable"),
    [
        *((code, False) for code in (1, 2, 3, 126, 127, 128, 139, 193, 255)),
        *((code, True) for code in (130, 137, 138, 143, 129, 134, 192)),
        (None, True),
    ],
)
def test_check_45_retryable_exit_codes(code: int | None, retryable: bool) -> None:
    assert exit_codes.is_retryable(code) is retryable


def test_check_45_code_of_the_framework_container_decides() -> None:
    role = JobRole("w", 1, {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}})
    pod = JobPod("p", "u", "w", 0, exit_codes={"b": 1, "a": 137})
    assert exit_codes.deciding_code(role, pod) == 137
    pod = JobPod("p", "u", "w", 0, exit_codes={"a": 0, "b": 2})
    assert exit_codes.deciding_code(role, pod) == 2
    assert exit_codes.deciding_code(role, JobPod("p", "u", "w", 0)) is None


@pytest.mark.parametrize("policy", [RestartPolicy.ON_FAILURE, RestartPolicy.ALWAYS])
def test_check_46_failed_pod_of_a_restarting_role_is_replaced(policy: RestartPolicy) -> None:
    world = JobSimulator(tf_job(worker=2, policy=policy)).started()
    old = world.uid(WORKER_0)
    world.fail(WORKER_0, code=1)
    assert [item.pod.name for item in world.step().delete] == [WORKER_0]
    world.started()
    assert world.uid(WORKER_0) != old
    assert world.phase == "Running"


# --- limits ----------------------------------------------------------------------------------------


def restarting_in_place(counts: list[int], limit: int) -> JobSimulator:
    policy = RestartPolicy.ON_FAILURE
    model = tf_job(worker=4, ps=2, policy=policy, backoff_limit=limit)
    world = JobSimulator(model).started()
    for index, count in enumerate(counts):
        world.restart_in_place(f"train-worker-{index}", count)
    world.settle()
    return world


def test_check_47_restarts_in_place_reach_the_backoff_limit() -> None:
    world = restarting_in_place([1, 1, 1, 1], limit=4)
    assert (world.phase, world.reason("Failed")) == ("Failed", "BackoffLimitExceeded")
    assert (world.pods, world.services) == ({}, set())
    assert world.status.restarts == 4, "the status shows the restarts that ended the job"
    assert restarting_in_place([3], limit=3).phase == "Failed"
    assert restarting_in_place([2], limit=3).phase == "Running"


def test_check_47_limit_of_zero_allows_no_restart() -> None:
    assert restarting_in_place([], limit=0).phase == "Running"
    assert restarting_in_place([1], limit=0).phase == "Failed"


def test_check_47_replaced_pods_count_towards_the_limit() -> None:
    world = JobSimulator(batch_job(1, backoff_limit=2)).started()
    for number in range(2):
        world.fail("train--0")
        world.started()
        assert (world.phase, world.status.restarts) == ("Running", number + 1)
    world.fail("train--0")
    world.step()
    assert (world.phase, world.reason("Failed")) == ("Failed", "BackoffLimitExceeded")
    assert (world.status.restarts, world.role("").failed) == (2, 3)


def test_check_47_restarts_in_place_outlive_their_pod() -> None:
    model = gang_job(workers(2, restart_policy=RestartPolicy.ON_FAILURE), backoff_limit=4)
    world = JobSimulator(model).started()
    world.restart_in_place(WORKER_0, 2)
    world.disrupt(WORKER_0)
    world.started()
    assert restarts(world) == (2, 0, 1)
    assert world.role().index_restarts == {"0": 2}
    world.restart_in_place(WORKER_1, 2)
    world.settle()
    assert world.reason("Failed") == "BackoffLimitExceeded"


@pytest.mark.parametrize(
    ("policy", "left"),
    [(CleanPodPolicy.NONE, 4), (CleanPodPolicy.RUNNING, 1), (CleanPodPolicy.ALL, 0)],
)
def test_check_49_backoff_respects_the_clean_policy(policy: CleanPodPolicy, left: int) -> None:
    model = gang_job(
        workers(4, restart_policy=RestartPolicy.ON_FAILURE),
        backoff_limit=0,
        clean_pod_policy=policy,
    )
    world = JobSimulator(model).started()
    world.fail(WORKER_0)
    world.settle()
    assert world.phase == "Failed"
    assert len(world.pods) == left


# --- rules -----------------------------------------------------------------------------------------


def test_check_68_first_rule_that_matches_wins() -> None:
    world = with_rules(
        rule(FailureAction.RESTART_POD, 7),
        rule(FailureAction.FAIL_JOB, 7, name="late"),
        rule(FailureAction.FAIL_JOB, 9, name="nine"),
    )
    world.fail(WORKER_0, code=7)
    world.step()
    assert world.phase == "Restarting"
    world.started()
    world.fail(WORKER_1, code=9)
    world.step()
    assert (world.phase, world.reason("Failed")) == ("Failed", "PodFailurePolicy")
    assert "rule nine" in world.message("Failed")


def test_check_68_earliest_failure_decides_within_a_rule() -> None:
    world = with_rules(rule(FailureAction.FAIL_JOB, 3))
    world.fail(WORKER_2, code=3)
    world.fail(WORKER_0, code=3)
    world.step()
    assert "worker 2" in world.message("Failed")
    assert world.role().failed == 2


def test_check_68_rule_order_precedes_time() -> None:
    world = with_rules(rule(FailureAction.RESTART_JOB, 5), rule(FailureAction.FAIL_JOB, 3))
    world.fail(WORKER_2, code=3)
    world.fail(WORKER_0, code=5)
    world.step()
    assert world.phase == "Restarting"
    assert world.role().attempt == 1


def test_check_68_default_is_to_restart_all_until_the_limit() -> None:
    world = with_rules(default_action=FailureAction.RESTART_JOB, max_restarts=1)
    world.fail(WORKER_0)
    world.started()
    assert (world.role().attempt, restarts(world)) == (1, (1, 1, 0))
    world.fail(WORKER_1)
    world.step()
    assert (world.phase, world.reason("Failed")) == ("Failed", "ReachedMaxRestarts")


def test_check_68_uncharged_restart_does_not_use_the_limit() -> None:
    world = with_rules(rule(FailureAction.RESTART_JOB_UNCHARGED, 4), max_restarts=0)
    for attempt in (1, 2, 3):
        world.fail(WORKER_0, code=4)
        world.started()
        assert world.role().attempt == attempt
    assert (world.phase, restarts(world)) == ("Running", (0, 0, 3))


def test_check_68_several_failures_restart_the_job_once() -> None:
    world = with_rules(default_action=FailureAction.RESTART_JOB)
    world.fail(WORKER_0, WORKER_1, WORKER_2)
    world.started()
    assert (world.role().attempt, restarts(world), world.role().failed) == (1, (1, 1, 0), 3)


def test_restart_of_a_role_leaves_the_others_alone() -> None:
    restart = rule(FailureAction.RESTART_ROLE, roles=frozenset({"Worker"}))
    model = tf_job(worker=2, ps=1, failure_rules=(restart,))
    world = JobSimulator(model).started()
    ps, other = world.uid("train-ps-0"), world.uid(WORKER_1)
    world.fail(WORKER_0)
    world.started()
    assert world.uid("train-ps-0") == ps
    assert world.uid(WORKER_1) != other
    assert (world.role("Worker").attempt, world.role("PS").attempt) == (1, 0)
    assert restarts(world) == (1, 1, 0)


def test_restart_of_a_role_does_not_mask_other_failures() -> None:
    restart = rule(FailureAction.RESTART_ROLE, roles=frozenset({"Worker"}))
    world = JobSimulator(tf_job(worker=2, ps=1, failure_rules=(restart,))).started()
    world.fail(WORKER_0, "train-ps-0")
    world.step()
    assert world.phase == "Failed"


def test_retryable_failure_does_not_mask_a_permanent_one() -> None:
    world = JobSimulator(tf_job(worker=4, policy=RestartPolicy.EXIT_CODE)).started()
    world.fail(WORKER_0, code=137)
    world.fail(WORKER_1, code=1)
    world.step()
    assert world.phase == "Failed"
    assert "Worker 1" in world.message("Failed")


def test_rule_matches_all_its_parts() -> None:
    world = with_rules(
        FailureRule(
            FailureAction.RESTART_POD,
            exit_codes=ExitCodeMatch(frozenset({1, 2}), negated=True, container="tensorflow"),
            reasons=frozenset({"OOMKilled"}),
            roles=frozenset({"Worker"}),
        )
    )
    world.fail(WORKER_0, code=137, reasons=frozenset({"OOMKilled"}))
    world.started()
    assert world.phase == "Running"
    world.fail(WORKER_0, code=137)
    world.step()
    assert world.phase == "Failed"


def test_ignored_failure_is_replaced_without_a_charge() -> None:
    world = with_rules(rule(FailureAction.IGNORE, 6), backoff_limit=0)
    world.fail(WORKER_0, code=6)
    world.started()
    assert (world.phase, restarts(world), world.role().failed) == ("Running", (0, 0, 1), 0)


# --- disruptions -----------------------------------------------------------------------------------


def test_disrupted_pod_is_replaced_without_a_charge() -> None:
    world = with_rules(backoff_limit=0, max_restarts=0)
    world.disrupt(WORKER_0)
    world.step()
    assert world.phase == "Restarting"
    assert "worker 0 (pod train-worker-0) was disrupted" in world.message("Restarting")
    world.started()
    assert (world.phase, restarts(world), world.role().failed) == ("Running", (0, 0, 1), 1)


def test_rule_about_conditions_decides_about_disruptions() -> None:
    condition = (("DisruptionTarget", "True"),)
    world = with_rules(FailureRule(FailureAction.RESTART_JOB_UNCHARGED, pod_conditions=condition))
    world.disrupt(WORKER_0)
    world.started()
    assert (world.role().attempt, restarts(world)) == (1, (0, 0, 1))


def test_failure_before_a_deletion_is_charged() -> None:
    world = with_rules(rule(FailureAction.RESTART_POD, 1))
    world.fail(WORKER_0)
    world.forward(5)
    world.delete(WORKER_0)
    world.started()
    assert restarts(world) == (1, 1, 0)


def test_pod_that_exits_cleanly_on_deletion_is_not_complete() -> None:
    world = JobSimulator(gang_job(workers(2))).started()
    world.delete(WORKER_1)
    world.end(WORKER_1, code=0)
    world.started()
    assert (world.role().succeeded, world.phase) == (0, "Running")
    world.end(WORKER_1)
    world.forward(5)
    world.delete(WORKER_1)
    world.settle()
    assert world.role().completed_indexes == "1"


def test_pod_of_a_lost_node_is_let_go_when_its_end_is_overdue() -> None:
    world = JobSimulator(gang_job(workers(1))).started()
    world.delete(WORKER_0)
    plan = world.step()
    assert (plan.release, plan.requeue_s) == ((), 35)
    world.forward(35)
    assert [pod.name for pod in world.step().release] == [WORKER_0]
    assert not world.pods[WORKER_0].tracked
    assert restarts(world) == (0, 0, 1)
    world.step()
    assert restarts(world) == (0, 0, 1)


def test_late_report_of_a_lost_node_is_counted_once() -> None:
    world = JobSimulator(gang_job(workers(2, restart_policy=RestartPolicy.ON_FAILURE))).started()
    world.restart_in_place(WORKER_0, 2)
    ended = world.now
    world.forward(5)
    world.delete(WORKER_0)
    world.forward(35)
    world.step(limit=1)
    assert restarts(world) == (2, 0, 1)
    world.end(WORKER_0, finished_at=ended)
    world.settle()
    assert world.role().completed_indexes == "0"
    assert restarts(world) == (2, 0, 1)


def test_restarts_of_an_earlier_attempt_are_counted_once() -> None:
    role = workers(3, restart_policy=RestartPolicy.ON_FAILURE)
    restart = rule(FailureAction.RESTART_JOB_UNCHARGED, 4)
    world = JobSimulator(gang_job(role, failure_rules=(restart,))).started()
    for name in (WORKER_0, WORKER_1, WORKER_2):
        world.restart_in_place(name, 1)
    world.end(WORKER_2)
    world.step()
    world.fail(WORKER_0, code=4)
    for _ in range(4):
        world.step(limit=1)
    world.started()
    assert restarts(world) == (3, 0, 1)


def test_restarts_of_a_pod_that_is_seen_late_are_counted_once() -> None:
    """The member that ends the attempt has not seen yet that the pod completed its index."""
    role = workers(3, restart_policy=RestartPolicy.ON_FAILURE)
    restart = rule(FailureAction.RESTART_JOB_UNCHARGED, 4)
    world = JobSimulator(gang_job(role, failure_rules=(restart,))).started()
    world.restart_in_place(WORKER_2, 1)
    cached = world.pods[WORKER_2]
    world.end(WORKER_2)
    world.step(limit=1)
    assert world.role().succeeded == 1
    ended, world.pods[WORKER_2] = world.pods[WORKER_2], cached
    world.fail(WORKER_0, code=4)
    world.step(limit=1)
    world.pods[WORKER_2] = ended
    world.started()
    assert (world.role().attempt, restarts(world)) == (1, (1, 0, 1))


def test_restarts_of_a_given_up_pod_are_counted_once() -> None:
    role = workers(2, restart_policy=RestartPolicy.ON_FAILURE, backoff_limit_per_index=1)
    restart = rule(FailureAction.RESTART_JOB_UNCHARGED, 4)
    world = JobSimulator(gang_job(role, failure_rules=(restart,))).started()
    world.restart_in_place(WORKER_0, 2)
    world.step(limit=1)
    world.fail(WORKER_1, code=4)
    world.started()
    assert (world.role().attempt, restarts(world)) == (1, (2, 0, 1))


def test_check_74_own_deletions_trigger_no_policy() -> None:
    world = with_rules(rule(FailureAction.FAIL_JOB, 143), rule(FailureAction.RESTART_JOB, 1))
    world.fail(WORKER_0)
    world.step()
    world.stop_deleted()
    world.started()
    assert (world.phase, restarts(world)) == ("Running", (1, 1, 0))


def test_check_74_failed_pods_stay_when_no_retry_is_left() -> None:
    world = with_rules(default_action=FailureAction.RESTART_JOB, max_restarts=0)
    world.fail(WORKER_0)
    world.settle()
    assert list(world.pods) == [WORKER_0]
    assert not world.pods[WORKER_0].tracked


def test_check_74_failed_pods_stay_when_one_of_them_ends_the_job() -> None:
    world = JobSimulator(batch_job(3, backoff_limit=1)).started()
    world.fail("train--0", "train--1")
    world.settle()
    assert world.reason("Failed") == "BackoffLimitExceeded"
    assert sorted(world.pods) == ["train--0", "train--1"]


# --- indexes and elastic roles -----------------------------------------------------------------------


def indexed(replicas: int = 3, **fields: Any) -> JobModel:
    return gang_job(workers(replicas, **fields), default_action=FailureAction.RESTART_POD)


def test_index_is_given_up_at_its_own_limit() -> None:
    world = JobSimulator(indexed(backoff_limit_per_index=1)).started()
    world.fail(WORKER_1)
    world.started()
    world.fail(WORKER_0, WORKER_1)
    world.started()
    assert (world.role().failed_indexes, world.phase) == ("1", "Running")
    assert world.role().index_restarts == {"0": 1, "1": 1}
    assert any(event.reason == "FailedIndex" for event in world.events)
    world.end(WORKER_0, WORKER_2)
    world.settle()
    assert world.reason("Failed") == "FailedIndexes"


def test_late_pod_of_a_given_up_index_is_deleted() -> None:
    world = JobSimulator(indexed(backoff_limit_per_index=0)).started()
    world.fail(WORKER_1)
    world.settle()
    world.delete(WORKER_1)
    world.add("worker", 1)
    assert [item.pod.name for item in world.plan().delete] == [WORKER_1]


def test_too_many_failed_indexes_fail_the_job() -> None:
    world = JobSimulator(indexed(backoff_limit_per_index=0, max_failed_indexes=1)).started()
    world.fail(WORKER_1)
    world.settle()
    assert world.phase == "Running"
    world.fail(WORKER_0)
    world.step()
    assert world.reason("Failed") == "MaxFailedIndexesExceeded"


def test_restarts_in_place_use_the_limit_of_the_index() -> None:
    role = workers(2, restart_policy=RestartPolicy.ON_FAILURE, backoff_limit_per_index=1)
    world = JobSimulator(gang_job(role)).started()
    world.restart_in_place(WORKER_0, 1)
    world.settle()
    assert WORKER_0 in world.pods
    world.restart_in_place(WORKER_0, 2)
    world.settle()
    assert list(world.pods) == [WORKER_1]
    assert (world.role().failed_indexes, world.status.restarts) == ("0", 2)


def restarted_in_place(most: int | None = None, **fields: Any) -> JobSimulator:
    policy = rule(FailureAction.RESTART_POD_IN_PLACE, 42)
    return with_rules(policy, replicas=2, max_restarts=most, **fields)


def test_restarts_in_place_by_a_rule_are_shown_and_charged_once() -> None:
    world = restarted_in_place()
    uid = world.uid(WORKER_0)
    world.restart_in_place(WORKER_0, 1)
    world.settle()
    assert (world.phase, world.uid(WORKER_0)) == ("Running", uid)
    assert (restarts(world), world.role().in_place_restarts) == ((0, 0, 0), 1)
    messages = [event.message for event in world.events if event.reason == "RestartedInPlace"]
    assert messages == ["containers of role worker were restarted in place: train-worker-0 (1)"]
    world.end(WORKER_0)
    world.settle()
    assert (restarts(world), world.role().in_place_restarts) == ((1, 1, 0), 0)
    assert world.role().index_restarts == {"0": 1}
    world.end(WORKER_1)
    world.settle()
    assert (world.phase, restarts(world)) == ("Succeeded", (1, 1, 0))


def test_restarts_in_place_by_a_rule_reach_the_most() -> None:
    world = restarted_in_place(most=2)
    world.restart_in_place(WORKER_0, 1)
    world.restart_in_place(WORKER_1, 1)
    world.settle()
    assert world.phase == "Running"
    world.restart_in_place(WORKER_1, 2)
    world.settle()
    assert (world.phase, world.reason("Failed")) == ("Failed", "ReachedMaxRestarts")
    assert restarts(world) == (3, 3, 0)
    assert "restarted it 3 times, and the most is 2" in world.message("Failed")


def test_restarts_in_place_by_a_rule_reach_the_backoff_limit() -> None:
    world = restarted_in_place(backoff_limit=2)
    world.restart_in_place(WORKER_0, 2)
    world.settle()
    assert (world.phase, world.reason("Failed")) == ("Failed", "BackoffLimitExceeded")


def test_pod_that_no_node_restarted_in_place_is_replaced() -> None:
    world = restarted_in_place(most=1)
    uid = world.uid(WORKER_0)
    world.fail(WORKER_0, code=42)
    world.started()
    assert (world.phase, restarts(world)) == ("Running", (1, 1, 0))
    assert world.uid(WORKER_0) != uid


def test_elastic_role_shrinks_instead_of_failing() -> None:
    world = JobSimulator(gang_job(workers(4, min_replicas=2, max_replicas=8))).started()
    others = (world.uid(WORKER_1), world.uid(WORKER_3))
    world.fail(WORKER_0)
    world.fail(WORKER_2)
    world.settle()
    assert (world.phase, world.role().failed_indexes) == ("Running", "0,2")
    assert (world.uid(WORKER_1), world.uid(WORKER_3)) == others
    world.fail(WORKER_1)
    world.step()
    assert world.phase == "Failed"


def test_elastic_role_succeeds_without_lost_members() -> None:
    world = JobSimulator(gang_job(workers(3, min_replicas=1))).started()
    world.fail(WORKER_0)
    world.end(WORKER_1, WORKER_2)
    world.settle()
    assert world.phase == "Succeeded"


def test_elastic_role_runs_on_when_no_restart_is_left() -> None:
    role = workers(3, min_replicas=2, restart_policy=RestartPolicy.EXIT_CODE)
    world = JobSimulator(gang_job(role, backoff_limit=0)).started()
    world.fail(WORKER_2, code=137)
    world.started()
    assert (world.phase, world.role().failed_indexes) == ("Running", "2")


def test_counted_pods_are_bounded() -> None:
    world = JobSimulator(batch_job(MOST_COUNTED + 100)).started()
    world.fail(*world.pods)
    plan = world.step()
    assert (len(world.status.counted_pods), plan.requeue_s) == (MOST_COUNTED, 0)
    world.settle()
    assert world.status.counted_pods == ()
    assert world.status.restarts == MOST_COUNTED + 100


def test_single_restart_reads_once() -> None:
    world = JobSimulator(batch_job(1, backoff_limit=1)).started()
    for _ in range(2):
        world.fail(*world.pods)
        world.started()
    assert world.phase == "Failed"
    assert "its pods were restarted once; the backoff limit is 1" in world.message("Failed")
