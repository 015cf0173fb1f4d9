"""What documents of all kinds of jobs mean to the core, and how their status is written."""

import copy
import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.unit.api.jobs import GANGJOB_FIELDS, complete, faults, gangjob, job, role, template

from grange.api import codec, schema
from grange.api.job_status import CONDITION_TYPES, JobStatus, RoleStatus
from grange.api.kinds import GANGJOB, JOB, PYTORCHJOB, TFJOB
from grange.api.meta import Condition
from grange.api.scheme import AnyKind
from grange.controllers.gangjob.adapter import JobAdapter
from grange.controllers.gangjob.adapters.batchjob import BATCHJOB_ADAPTER
from grange.controllers.gangjob.adapters.gangjob import GANGJOB_ADAPTER
from grange.controllers.gangjob.adapters.pytorchjob import PYTORCHJOB_ADAPTER
from grange.controllers.gangjob.adapters.tfjob import TFJOB_ADAPTER
from grange.controllers.gangjob.errors import InvalidJob
from grange.controllers.gangjob.model import (
    Await,
    CleanPodPolicy,
    FailureAction,
    GangBackend,
    JobModel,
    RestartPolicy,
    ServiceMode,
    SuccessRule,
)

Document = dict[str, Any]
ALL: tuple[JobAdapter[Any], ...] = (
    GANGJOB_ADAPTER,
    TFJOB_ADAPTER,
    PYTORCHJOB_ADAPTER,
    BATCHJOB_ADAPTER,
)
BY_KIND = {adapter.kind.kind: adapter for adapter in ALL}
NEVER = template(restartPolicy="Never")
ALL_COMPLETIONS = SuccessRule(reason="CompletionsReached")


def view(info: AnyKind, document: Document) -> Any:
    return codec.decode_view(codec.encode(document), info.view)


def model(info: AnyKind, document: Document) -> JobModel:
    """The model of a document without its defaults: as a server that has only the schema keeps it."""
    document = copy.deepcopy(document)
    document["metadata"] |= {"uid": "u", "generation": 2}
    found: JobModel = BY_KIND[info.kind].model(view(info, document))
    return found


def tensorflow(replicas: int = 1, **more: Any) -> Document:
    return {"replicas": replicas, "template": template("tensorflow"), **more}


def pytorch(replicas: int = 1, **more: Any) -> Document:
    return {"replicas": replicas, "template": template("pytorch"), **more}


# --- GangJob -----------------------------------------------------------------------------------------


def test_gangjob_is_converted_completely() -> None:
    found = model(GANGJOB, job(GANGJOB, **GANGJOB_FIELDS))
    assert (found.kind, found.namespace, found.name, found.uid) == (
        "GangJob",
        "default",
        "train",
        "u",
    )
    assert (found.generation, found.framework, found.services) == (2, "PyTorch", ServiceMode.JOB)
    assert [item.name for item in found.roles] == ["launcher", "worker", "server"]
    launcher, worker, server = found.roles
    assert (launcher.leader, worker.leader, server.completes) == (True, False, False)
    assert (worker.replicas, worker.min_replicas, worker.max_replicas) == (4, 2, 8)
    assert worker.restart_policy is RestartPolicy.EXIT_CODE
    assert [(item.role, item.condition) for item in worker.depends_on] == [
        ("launcher", Await.READY)
    ]
    assert (worker.backoff_limit_per_index, worker.max_failed_indexes) == (2, 1)
    assert worker.template["spec"]["containers"][0]["name"] == "main"
    assert found.clean_pod_policy is CleanPodPolicy.ALL
    assert (found.ttl_s, found.active_deadline_s, found.backoff_limit) == (600, 3600, 3)
    assert (found.max_restarts, found.blocking_restart) == (3, True)
    assert found.success == (
        SuccessRule(roles=frozenset({"worker"}), indexes=frozenset(range(4)), count=2),
    )
    gang = found.scheduling
    assert (gang.backend, gang.min_available, gang.queue) == (GangBackend.VOLCANO, 4, "team-a")
    assert (gang.priority_class, gang.timeout_s) == ("high", 60)
    assert (gang.topology_key, gang.topology_required) == ("topology.kubernetes.io/zone", False)


def test_check_68_rules_keep_their_order_and_parts() -> None:
    oom, restart, ignore, index = model(GANGJOB, job(GANGJOB, **GANGJOB_FIELDS)).failure_rules
    assert (oom.name, oom.action, oom.roles) == (
        "oom",
        FailureAction.FAIL_JOB,
        frozenset({"worker"}),
    )
    assert oom.reasons == {"OOMKilled"}
    assert restart.exit_codes is not None
    assert restart.exit_codes.values == frozenset({42})
    assert restart.exit_codes.container == "main"
    assert ignore.pod_conditions == (("DisruptionTarget", "True"),)
    assert index.action is FailureAction.FAIL_INDEX


@pytest.mark.parametrize(
    ("policy", "action"),
    [
        (None, FailureAction.FAIL_JOB),
        ({"restartStrategy": "Recreate"}, FailureAction.FAIL_JOB),
        ({"maxRestarts": 0}, FailureAction.RESTART_JOB),
        ({"maxRestarts": 3}, FailureAction.RESTART_JOB),
    ],
)
def test_check_68_default_restarts_where_restarts_are_limited(
    policy: Document | None, action: FailureAction
) -> None:
    more: Document = {} if policy is None else {"failurePolicy": policy}
    assert model(GANGJOB, gangjob(**more)).default_action is action


def test_check_71_roles_come_after_those_they_wait_for() -> None:
    roles = {
        "a": role(dependsOn=[{"role": "c", "condition": "Complete"}]),
        "b": role(),
        "c": role(dependsOn=[{"role": "d"}]),
        "d": role(),
    }
    assert [item.name for item in model(GANGJOB, gangjob(roles=roles)).roles] == [
        "b",
        "d",
        "c",
        "a",
    ]


@pytest.mark.parametrize(
    ("info", "manager", "managed"),
    [
        (GANGJOB, None, True),
        (GANGJOB, "grange.dev/gangjob-controller", True),
        (GANGJOB, "kueue.x-k8s.io/multikueue", False),
        (TFJOB, "kubeflow.org/training-operator", True),
        (TFJOB, "kueue.x-k8s.io/multikueue", False),
        (JOB, "kubernetes.io/job-controller", True),
        (JOB, "kueue.x-k8s.io/multikueue", False),
        (GANGJOB, "", False),
        (TFJOB, "", False),
        (JOB, "", False),
    ],
)
def test_check_65_jobs_of_other_managers_are_not_ours(
    info: AnyKind,
    manager: str | None,
    managed: bool,
) -> None:
    given = {} if manager is None else {"managedBy": manager}
    if info is JOB:
        document = job(JOB, template=NEVER, **given)
    elif info is TFJOB:
        document = job(TFJOB, tfReplicaSpecs={"Worker": tensorflow()}, runPolicy=given)
    else:
        document = gangjob(runPolicy=given)
    assert BY_KIND[info.kind].manages(view(info, document)) is managed


# --- kubeflow.org ------------------------------------------------------------------------------------


def test_tfjob_roles_have_their_names_and_order() -> None:
    specs = {"worker": tensorflow(3), "PS": tensorflow(2), "CHIEF": tensorflow()}
    found = model(TFJOB, job(TFJOB, tfReplicaSpecs=specs))
    assert [(item.name, item.replicas) for item in found.roles] == [
        ("PS", 2),
        ("Chief", 1),
        ("Worker", 3),
    ]
    assert [item.leader for item in found.roles] == [False, True, False]
    assert [item.completes for item in found.roles] == [False, True, True]
    assert {item.restart_policy for item in found.roles} == {RestartPolicy.NEVER}
    assert {item.container for item in found.roles} == {"tensorflow"}
    assert (found.framework, found.services) == ("TensorFlow", ServiceMode.POD)
    assert found.success == (SuccessRule(),)
    assert found.clean_pod_policy is CleanPodPolicy.RUNNING


WORKERS = frozenset({"Worker"})
FIRST = SuccessRule(roles=WORKERS, indexes=frozenset({0}))


@pytest.mark.parametrize(
    ("specs", "policy", "rules"),
    [
        ({"Worker": tensorflow(4)}, "", (FIRST, SuccessRule(roles=WORKERS))),
        ({"Worker": tensorflow(4)}, "AllWorkers", (SuccessRule(roles=WORKERS),)),
        ({"Worker": tensorflow(4), "Master": tensorflow()}, "", (SuccessRule(),)),
        (
            {"Worker": tensorflow(4), "Chief": tensorflow(0)},
            "",
            (FIRST, SuccessRule(roles=WORKERS)),
        ),
        ({"PS": tensorflow(4)}, "", (SuccessRule(),)),
    ],
)
def test_check_51_without_a_chief_the_first_worker_decides(
    specs: Document, policy: str, rules: tuple[SuccessRule, ...]
) -> None:
    document = job(TFJOB, tfReplicaSpecs=specs, successPolicy=policy)
    assert model(TFJOB, document).success == rules


def test_dynamic_workers_are_elastic_and_sparsely_wired() -> None:
    document = job(
        TFJOB,
        tfReplicaSpecs={"Worker": tensorflow(3), "PS": tensorflow()},
        enableDynamicWorker=True,
    )
    found = model(TFJOB, document)
    assert found.wiring.sparse
    server, worker = found.roles
    assert (worker.min_replicas, worker.max_replicas) == (1, 100_000)
    assert (server.min_replicas, server.max_replicas) == (None, None)


def test_pytorchjob_of_fixed_size_is_led_by_its_master() -> None:
    specs = {"Worker": pytorch(3), "Master": pytorch()}
    found = model(PYTORCHJOB, job(PYTORCHJOB, pytorchReplicaSpecs=specs, nprocPerNode="2"))
    assert [(item.name, item.leader) for item in found.roles] == [
        ("Master", True),
        ("Worker", False),
    ]
    assert {item.restart_policy for item in found.roles} == {RestartPolicy.ON_FAILURE}
    assert found.wiring.processes_per_node == "2"
    assert found.wiring.rendezvous is None
    assert found.success == (SuccessRule(),)


def test_elastic_pytorchjob_has_a_rendezvous() -> None:
    policy = {
        "minReplicas": 1,
        "maxReplicas": 3,
        "rdzvBackend": "etcd",
        "rdzvHost": "etcd.default",
        "rdzvPort": 2379,
        "rdzvId": "one",
        "rdzvConf": [{"key": "a", "value": "b"}],
        "standalone": False,
        "nProcPerNode": 4,
        "maxRestarts": 100,
    }
    specs = {"Worker": pytorch(2)}
    found = model(PYTORCHJOB, job(PYTORCHJOB, pytorchReplicaSpecs=specs, elasticPolicy=policy))
    [worker] = found.roles
    assert (worker.min_replicas, worker.max_replicas) == (1, 3)
    assert found.wiring.processes_per_node == "4"
    meeting = found.wiring.rendezvous
    assert meeting is not None
    assert (meeting.backend, meeting.host, meeting.port) == ("etcd", "etcd.default", 2379)
    assert (meeting.identifier, meeting.options) == ("one", (("a", "b"),))
    assert meeting.max_restarts == 100
    assert found.success == (SuccessRule(any_of=True),)


# --- batch/v1 ----------------------------------------------------------------------------------------


def test_indexed_job_is_a_role_without_a_name() -> None:
    found = model(
        JOB,
        job(
            JOB,
            template=NEVER,
            completionMode="Indexed",
            completions=5,
            parallelism=2,
            backoffLimitPerIndex=1,
            maxFailedIndexes=2,
            activeDeadlineSeconds=60,
            ttlSecondsAfterFinished=5,
            suspend=True,
        ),
    )
    [only] = found.roles
    assert (only.name, only.replicas, only.parallelism) == ("", 5, 2)
    assert (only.backoff_limit_per_index, only.max_failed_indexes) == (1, 2)
    assert only.restart_policy is RestartPolicy.NEVER
    assert (found.framework, found.services) == ("", ServiceMode.NONE)
    assert found.scheduling.backend is GangBackend.NONE
    assert found.default_action is FailureAction.RESTART_POD
    assert (found.active_deadline_s, found.ttl_s, found.suspend) == (60, 5, True)
    assert found.success == (ALL_COMPLETIONS,)
    assert BATCHJOB_ADAPTER.pod_name(found, "", 3) == "train-3"


@pytest.mark.parametrize(
    ("spec", "replicas", "limit", "success"),
    [
        ({}, 1, 6, (ALL_COMPLETIONS,)),
        ({"completions": 3}, 3, 6, (ALL_COMPLETIONS,)),
        ({"parallelism": 4}, 4, 6, (replace(ALL_COMPLETIONS, count=1, drain=True),)),
        ({"completions": 3, "backoffLimit": 0}, 3, 0, (ALL_COMPLETIONS,)),
        (
            {
                "completionMode": "Indexed",
                "completions": 4,
                "successPolicy": {
                    "rules": [
                        {"succeededIndexes": "0,2-3", "succeededCount": 1},
                        {"succeededCount": 2},
                    ]
                },
            },
            4,
            6,
            (
                SuccessRule(indexes=frozenset({0, 2, 3}), count=1, reason="SuccessPolicy"),
                SuccessRule(count=2, reason="SuccessPolicy"),
                ALL_COMPLETIONS,
            ),
        ),
    ],
)
def test_completions_and_policies_become_success_rules(
    spec: Document, replicas: int, limit: int, success: tuple[SuccessRule, ...]
) -> None:
    found = model(JOB, complete(JOB, job(JOB, template=NEVER, **spec)))
    assert (found.roles[0].replicas, found.backoff_limit) == (replicas, limit)
    assert found.success == success


def test_pod_failure_policy_becomes_failure_rules() -> None:
    rules = [
        {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [1, 2]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        {"action": "Count", "onExitCodes": {"operator": "In", "values": [3]}},
    ]
    found = model(JOB, job(JOB, template=NEVER, podFailurePolicy={"rules": rules})).failure_rules
    assert [item.action for item in found] == [
        FailureAction.FAIL_JOB,
        FailureAction.IGNORE,
        FailureAction.RESTART_POD,
    ]
    assert found[0].exit_codes is not None
    assert found[0].exit_codes.negated
    assert found[0].exit_codes.values == frozenset({1, 2})
    assert found[1].pod_conditions == (("DisruptionTarget", "True"),)


def condition(kind: str, status: str = "True") -> Condition:
    return Condition(kind, status, reason="Because", message="so", last_transition_time=START)


START = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ((), []),
        ((condition("Created"), condition("Running")), []),
        ((condition("Suspended", "False"),), [("Suspended", "False")]),
        (
            (condition("Running", "False"), condition("Succeeded")),
            [("SuccessCriteriaMet", "True"), ("Complete", "True")],
        ),
        ((condition("Failed"),), [("FailureTarget", "True"), ("Failed", "True")]),
    ],
)
def test_job_conditions_are_those_of_batch(
    ours: tuple[Condition, ...], theirs: list[tuple[str, str]]
) -> None:
    status = JobStatus(conditions=ours, start_time=START, completion_time=START)
    document = BATCHJOB_ADAPTER.status_document(status)
    assert [(c["type"], c["status"]) for c in document.get("conditions", [])] == theirs
    assert ("completionTime" in document) is (("Complete", "True") in theirs)


def test_status_of_another_controller_is_understood() -> None:
    document = job(JOB, template=NEVER)
    document["status"] = {
        "succeeded": 2,
        "completedIndexes": "0-1",
        "startTime": START,
        "conditions": [{"type": "Complete", "status": "True"}],
    }
    found = BATCHJOB_ADAPTER.status(view(JOB, document))
    assert [item.type for item in found.conditions] == ["Succeeded"]
    assert found.replica_statuses[""].completed_indexes == "0-1"
    assert BATCHJOB_ADAPTER.status(view(JOB, job(JOB, template=NEVER))) == JobStatus()


# --- all kinds ---------------------------------------------------------------------------------------

SPECS: dict[str, Document] = {
    "GangJob": {"replicaSpecs": {"worker": role(2)}},
    "TFJob": {"tfReplicaSpecs": {"Worker": tensorflow(2)}},
    "PyTorchJob": {"pytorchReplicaSpecs": {"Worker": pytorch(2)}},
    "Job": {"template": NEVER},
}
ROLE_NAMES = {"GangJob": "worker", "TFJob": "Worker", "PyTorchJob": "Worker", "Job": ""}
counts = st.integers(0, 1000)
statuses = st.builds(
    JobStatus,
    observed_generation=counts,
    phase=st.sampled_from(("", *CONDITION_TYPES)),
    conditions=st.lists(
        st.builds(condition, st.sampled_from(CONDITION_TYPES), st.sampled_from(("True", "False"))),
        max_size=5,
        unique_by=lambda item: item.type,
    ).map(tuple),
    start_time=st.sampled_from(("", START)),
    completion_time=st.sampled_from(("", START)),
    restarts=counts,
    restarts_towards_max=counts,
    uncharged_restarts=counts,
    counted_pods=st.lists(st.uuids().map(str), max_size=3).map(tuple),
    pod_group=st.sampled_from(("", "train-u")),
    queue=st.sampled_from(("", "team-a")),
)
role_statuses = st.builds(
    RoleStatus,
    active=counts,
    ready=counts,
    succeeded=counts,
    failed=counts,
    attempt=counts,
    restarts=counts,
    completed_indexes=st.sampled_from(("", "0-3,7")),
    failed_indexes=st.sampled_from(("", "1")),
    index_restarts=st.dictionaries(st.integers(0, 9).map(str), counts, max_size=3),
)


@pytest.mark.parametrize("kind", SPECS)
@given(status=statuses, pods=role_statuses)
def test_statuses_fit_the_schema_and_are_read_back(
    kind: str, status: JobStatus, pods: RoleStatus
) -> None:
    adapter = BY_KIND[kind]
    document = job(adapter.kind, **SPECS[kind])
    document["status"] = {"gangJob": {}} if kind == "Job" else {}
    role_name = ROLE_NAMES[kind]
    selector = adapter.status(view(adapter.kind, document)).replica_statuses.get(role_name)
    pods = RoleStatus(
        **{
            **{name: getattr(pods, name) for name in pods.__struct_fields__},
            "selector": "" if selector is None else selector.selector,
        }
    )
    values = {name: getattr(status, name) for name in status.__struct_fields__}
    status = JobStatus(**{**values, "replica_statuses": {role_name: pods}})
    document["status"] = adapter.status_document(status)
    assert schema.check(copy.deepcopy(document), adapter.kind) == []
    assert adapter.status(view(adapter.kind, document)) == status


@pytest.mark.parametrize("kind", SPECS)
def test_selectors_name_the_pods_of_a_role(kind: str) -> None:
    adapter = BY_KIND[kind]
    found = adapter.status(view(adapter.kind, job(adapter.kind, **SPECS[kind]))).replica_statuses
    if kind == "Job":
        assert found == {}
        return
    [selector] = [item.selector for item in found.values()]
    pairs = dict(item.split("=") for item in selector.split(","))
    key, value = adapter.labels.operator
    assert pairs == {key: value, adapter.labels.job: "train", adapter.labels.role: "worker"}


def small(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


def optional(**strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[Document]:
    return st.fixed_dictionaries({}, optional=strategies)


def roles_of(container: str, **more: st.SearchStrategy[Any]) -> st.SearchStrategy[Document]:
    return st.builds(
        lambda fields, template: {**fields, "template": template},
        optional(
            replicas=small(-1, 0, 1, 2, 5, 100_001),
            restartPolicy=small("Never", "OnFailure", "ExitCode", "Always"),
            **more,
        ),
        small(
            template(container), template("other"), template(container, nodeSelector={"a": "b"}), {}
        ),
    )


policies = optional(
    backoffLimit=small(-1, 0, 3),
    ttlSecondsAfterFinished=small(-1, 0),
    managedBy=small("x", "a.b/c"),
    suspend=st.booleans(),
    schedulingPolicy=optional(
        minAvailable=small(0, 1, 2, 9),
        queue=small("", "A b", "team"),
        minResources=small({}, {"cpu": "x"}),
    ),
)
gangjobs = st.fixed_dictionaries(
    {
        "replicaSpecs": st.dictionaries(
            small("a", "b", "worker", "Worker"),
            roles_of(
                "main",
                minReplicas=small(0, 1, 2, 9),
                maxReplicas=small(0, 1, 6),
                minAvailable=small(0, 1, 9),
                leader=st.booleans(),
                completes=st.booleans(),
                backoffLimitPerIndex=small(-1, 1),
                maxFailedIndexes=small(0, 1, 9),
                dependsOn=st.lists(
                    st.builds(
                        lambda name, condition: {"role": name, "condition": condition},
                        small("a", "b", "worker", "x"),
                        small("Ready", "Complete"),
                    ),
                    max_size=2,
                ),
            ),
            max_size=3,
        )
    },
    optional={
        "runPolicy": policies,
        "framework": small("Generic", "PyTorch"),
        "successPolicy": optional(
            operator=small("All", "Any"),
            roles=st.lists(small("a", "b", "x"), max_size=2),
            indexes=small("", "0", "0-1", "7", "x"),
            count=small(0, 1, 9),
        ),
        "failurePolicy": optional(
            maxRestarts=small(-1, 0, 2),
            rules=st.lists(
                st.builds(
                    lambda action, parts: {"action": action, **parts},
                    small("RestartJob", "FailIndex", "Ignore"),
                    optional(
                        roles=st.lists(small("a", "b", "x"), max_size=2),
                        onReasons=st.lists(small("", "Evicted"), max_size=1),
                        onExitCodes=st.fixed_dictionaries({"values": small([], [0], [3], [1, 2])}),
                    ),
                ),
                max_size=3,
            ),
        ),
    },
)
NAMES = small("PS", "Worker", "worker", "Chief", "Master", "Evaluator", "Launcher")
tfjobs = st.fixed_dictionaries(
    {"tfReplicaSpecs": st.dictionaries(NAMES, roles_of("tensorflow"), max_size=3)},
    optional={
        "runPolicy": policies,
        "successPolicy": small("", "AllWorkers"),
        "enableDynamicWorker": st.booleans(),
    },
)
pytorchjobs = st.fixed_dictionaries(
    {"pytorchReplicaSpecs": st.dictionaries(NAMES, roles_of("pytorch"), max_size=2)},
    optional={
        "runPolicy": policies,
        "nprocPerNode": small("auto", "2", "x"),
        "elasticPolicy": optional(
            minReplicas=small(0, 1, 2), maxReplicas=small(1, 9), rdzvPort=small(0, 29400)
        ),
    },
)
batchjobs = st.fixed_dictionaries(
    {"template": small(NEVER, template(restartPolicy="OnFailure"), template(), {})},
    optional={
        "completions": small(-1, 0, 1, 4),
        "parallelism": small(-1, 0, 1, 4),
        "completionMode": small("Indexed", "NonIndexed", "Other"),
        "backoffLimitPerIndex": small(-1, 0, 2),
        "maxFailedIndexes": small(0, 2, 9),
        "managedBy": small("x", "a.b/c"),
        "successPolicy": st.fixed_dictionaries(
            {"rules": st.lists(optional(succeededIndexes=small("0", "9", "x"), succeededCount=small(0, 1)), max_size=2)}
        ),
    },
)  # fmt: skip
GENERATED = [(GANGJOB, gangjobs), (TFJOB, tfjobs), (PYTORCHJOB, pytorchjobs), (JOB, batchjobs)]


@pytest.mark.parametrize(("info", "specs"), GENERATED, ids=lambda item: getattr(item, "kind", ""))
@settings(max_examples=200)
@given(data=st.data(), name=small("train", "a" * 54, "a" * 63))
def test_valid_jobs_convert_and_invalid_ones_name_their_field(
    info: AnyKind, specs: st.SearchStrategy[Document], data: st.DataObject, name: str
) -> None:
    document = job(info, name, **copy.deepcopy(data.draw(specs)))
    document["metadata"]["uid"] = "u"
    found = faults(info, document)
    assert all(field.startswith(("spec.", "metadata.name")) for field, _ in found)
    decoded = view(info, document)
    before = copy.deepcopy(decoded)
    if not found:
        made = BY_KIND[info.kind].model(decoded)
        assert made.roles
        assert len({item.name for item in made.roles}) == len(made.roles)
        largest = [
            BY_KIND[info.kind].pod_name(made, item.name, item.replicas) for item in made.roles
        ]
        assert all(made.name in pod for pod in largest)
    else:
        with pytest.raises(InvalidJob) as error:
            BY_KIND[info.kind].model(decoded)
        assert str(error.value).startswith(("spec.", "metadata.name"))
    assert decoded == before, "converting changed the object"


@pytest.mark.parametrize(
    ("info", "path", "roles", "elastic"),
    [
        (GANGJOB, "replicaSpecs", {"worker": role(2)}, {}),
        (TFJOB, "tfReplicaSpecs", {"Worker": tensorflow(2)}, {"enableDynamicWorker": True}),
        (
            PYTORCHJOB,
            "pytorchReplicaSpecs",
            {"Worker": pytorch(2)},
            {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4}},
        ),
    ],
)
def test_digests_show_what_may_not_change_while_it_runs(
    info: AnyKind, path: str, roles: Document, elastic: Document
) -> None:
    numbers = itertools.count()

    def digests(roles: Document, **spec: Any) -> Document:
        document = job(info)
        document["spec"] = {path: roles, **spec}
        document["metadata"] |= {"uid": f"{info.kind}-{next(numbers)}", "generation": 1}
        return dict(BY_KIND[info.kind].model(view(info, document)).spec_digests)

    [name] = roles
    at = f"spec.{path}[{name}]"
    first = digests(roles)
    assert digests(roles, runPolicy={"suspend": True, "ttlSecondsAfterFinished": 5}) == first
    changed = digests(roles, runPolicy={"backoffLimit": 5})
    assert changed == {**first, "spec.runPolicy": changed["spec.runPolicy"]}
    more = {name: {**roles[name], "replicas": 3}}
    assert digests(more)[at] != first[at]
    if elastic:
        assert digests(more, **elastic) == digests(roles, **elastic)


def test_changed_specs_are_checked_again() -> None:
    document = gangjob()
    document["metadata"] |= {"uid": "checked-again", "generation": 1}
    assert GANGJOB_ADAPTER.model(view(GANGJOB, document)).roles[0].replicas == 4
    document["spec"]["replicaSpecs"]["worker"]["replicas"] = -1
    document["metadata"]["generation"] = 2
    for _ in range(2):
        with pytest.raises(InvalidJob, match=r"spec\.replicaSpecs\[worker\]\.replicas"):
            GANGJOB_ADAPTER.model(view(GANGJOB, document))
