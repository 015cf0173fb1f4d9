"""The documents of pods and Services: checks 33, 38, 39 and 43."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.gangjob.wired_jobs import blocks, context, model, pod, role, template

from grange.api import codec
from grange.api.kinds import POD, SERVICE
from grange.api.kinds.pod import Pod
from grange.controllers.gangjob.adapter import JobLabels
from grange.controllers.gangjob.errors import InvalidJob
from grange.controllers.gangjob.job_services import files_document, files_name, service_document
from grange.controllers.gangjob.model import (
    ExitCodeMatch,
    FailureAction,
    FailureRule,
    GangBackend,
    RestartPolicy,
    SchedulingPolicy,
    ServiceMode,
)

OWNER = {
    "apiVersion": "grange.dev/v1alpha1",
    "kind": "GangJob",
    "name": "train",
    "uid": "0b3c2b9e-uid",
    "controller": True,
    "blockOwnerDeletion": True,
}


def service_names(there: Any) -> list[str]:
    return [
        there.peers.pod(item.name, index)
        for item in there.model.roles
        for index in range(item.replicas)
    ]


@pytest.mark.parametrize(("workers", "servers"), [(1, 0), (4, 2)])
def test_check_33_pods_and_services_have_the_owner(workers: int, servers: int) -> None:
    job = model(role("Worker", workers), role("PS", servers), framework="TensorFlow")
    there = context(job)
    names = service_names(there)
    assert len(names) == workers + servers
    for name in names:
        service = service_document(there, name)
        assert service["metadata"]["ownerReferences"] == [OWNER]
        assert service["metadata"]["name"] == name
        labels = service["metadata"]["labels"]
        assert service["spec"]["selector"] == labels
        made = pod(
            there, labels["grange.dev/replica-type"], int(labels["grange.dev/replica-index"])
        )
        meta = made.document["metadata"]
        assert meta["name"] == name
        assert meta["ownerReferences"] == [OWNER]
        assert labels.items() <= meta["labels"].items()
        assert "grange.dev/job-role" not in labels


def test_check_38_labels_and_annotations_are_copied() -> None:
    meta = {
        "labels": {"app": "mine", "grange.dev/replica-index": "99"},
        "annotations": {"note": "kept"},
        "finalizers": ["example.com/mine"],
    }
    there = context(model(role("Worker", 2, template=template(meta=meta))))
    found = pod(there, "Worker", 1, attempt=3).document["metadata"]
    assert found["labels"] == {
        "app": "mine",
        "grange.dev/job-operator": "gangjob",
        "grange.dev/job-name": "train",
        "grange.dev/replica-type": "worker",
        "grange.dev/replica-index": "1",
        "grange.dev/job-attempt": "3",
        "scheduling.x-k8s.io/pod-group": found["labels"]["scheduling.x-k8s.io/pod-group"],
    }
    assert found["annotations"] == {"note": "kept"}
    assert found["finalizers"] == ["example.com/mine", "grange.dev/job-tracking"]
    assert there.model.roles[0].template["metadata"] == meta


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (RestartPolicy.EXIT_CODE, "Never"),
        (RestartPolicy.NEVER, "Never"),
        (RestartPolicy.ALWAYS, "Always"),
        (RestartPolicy.ON_FAILURE, "OnFailure"),
    ],
)
def test_check_39_restart_policy(policy: RestartPolicy, expected: str) -> None:
    made = pod(context(model(role("worker", restart_policy=policy))), "worker")
    assert made.document["spec"]["restartPolicy"] == expected
    assert made.events == ()


OOM = FailureRule(FailureAction.FAIL_JOB, reasons=frozenset({"OOMKilled"}))
CODE = FailureRule(FailureAction.RESTART_JOB, exit_codes=ExitCodeMatch(frozenset({42})))
DISRUPTED = FailureRule(FailureAction.IGNORE, pod_conditions=(("DisruptionTarget", "True"),))


@pytest.mark.parametrize(
    ("policy", "rule", "expected"),
    [
        (RestartPolicy.ON_FAILURE, OOM, "Never"),
        (RestartPolicy.ON_FAILURE, CODE, "Never"),
        (RestartPolicy.ON_FAILURE, replace(CODE, roles=frozenset({"worker"})), "Never"),
        (RestartPolicy.ON_FAILURE, replace(CODE, roles=frozenset({"other"})), "OnFailure"),
        (RestartPolicy.ON_FAILURE, DISRUPTED, "OnFailure"),
        (RestartPolicy.ALWAYS, CODE, "Always"),
        (RestartPolicy.NEVER, CODE, "Never"),
    ],
)
def test_failures_that_rules_look_at_end_the_pod(
    policy: RestartPolicy, rule: FailureRule, expected: str
) -> None:
    job = model(role("worker", restart_policy=policy), failure_rules=(rule,))
    assert pod(context(job), "worker").document["spec"]["restartPolicy"] == expected


def in_place(*codes: int, negated: bool = False, **parts: Any) -> FailureRule:
    match = ExitCodeMatch(frozenset(codes), negated=negated, **parts)
    return FailureRule(FailureAction.RESTART_POD_IN_PLACE, exit_codes=match)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([in_place(43, 42)], ("In", [42, 43])),
        ([in_place(1, negated=True)], ("NotIn", [0, 1])),
        ([CODE, in_place(42, 43)], ("In", [43])),
        ([CODE, in_place(1, negated=True)], ("NotIn", [0, 1, 42])),
        ([in_place(42), CODE], ("In", [42])),
        ([replace(CODE, roles=frozenset({"other"})), in_place(42)], ("In", [42])),
        ([DISRUPTED, in_place(42)], ("In", [42])),
        ([CODE, in_place(42)], None),
        ([in_place(42, container="other")], None),
        ([replace(in_place(42), roles=frozenset({"other"}))], None),
    ],
)
def test_rule_restarts_in_place_where_it_is_the_first(
    rules: list[FailureRule], expected: tuple[str, list[int]] | None
) -> None:
    job = model(role("worker"), failure_rules=tuple(rules))
    spec = pod(context(job), "worker").document["spec"]
    [container] = spec["containers"]
    found = container.get("restartPolicyRules")
    if expected is None:
        assert found is None
        return
    codes = {"operator": expected[0], "values": expected[1]}
    assert found == [{"action": "Restart", "exitCodes": codes}]
    assert (spec["restartPolicy"], container["restartPolicy"]) == ("Never", "Never")


def test_rule_restarts_init_containers_but_no_sidecars() -> None:
    body = template()
    sidecar = {"name": "side", "image": "s", "restartPolicy": "Always"}
    body["spec"]["initContainers"] = [{"name": "first", "image": "i"}, sidecar]
    job = model(role("worker", template=body), failure_rules=(in_place(42),))
    first, side = pod(context(job), "worker").document["spec"]["initContainers"]
    assert first["restartPolicyRules"][0]["exitCodes"]["values"] == [42]
    assert "restartPolicyRules" not in side


def test_rule_changes_nothing_where_all_is_restarted_in_place() -> None:
    job = model(role("worker", restart_policy=RestartPolicy.ALWAYS), failure_rules=(in_place(42),))
    spec = pod(context(job), "worker").document["spec"]
    assert spec["restartPolicy"] == "Always"
    assert "restartPolicyRules" not in spec["containers"][0]


def test_check_39_policy_of_the_template_is_warned_about() -> None:
    body = template()
    body["spec"]["restartPolicy"] = "Always"
    made = pod(context(model(role("worker", template=body))), "worker")
    assert made.document["spec"]["restartPolicy"] == "Never"
    (event,) = made.events
    assert (event.type, event.reason) == ("Warning", "SettedPodTemplateRestartPolicy")
    assert event.message.startswith(
        "spec.replicaSpecs[worker].template.spec.restartPolicy: Always has no effect"
    )


def test_check_43_missing_framework_container_is_an_error() -> None:
    job = model(role("Worker", container="tensorflow"), services=ServiceMode.POD)
    with pytest.raises(InvalidJob, match="there is no container tensorflow, in which GangJob runs"):
        service_document(context(job), "train-worker-0")
    empty = model(role("Worker", template={"spec": {"containers": []}}), services=ServiceMode.POD)
    with pytest.raises(InvalidJob, match=r"\[Worker\]\.template\.spec\.containers: required"):
        service_document(context(empty), "train-worker-0")


def test_check_43_extra_ports_are_published() -> None:
    ports = [{"containerPort": 8080}, {"name": "stats", "containerPort": 53, "protocol": "UDP"}]
    body = template(ports=ports)
    there = context(model(role("Worker", 2, template=body), framework="TensorFlow"))
    spec = service_document(there, "train-worker-1")["spec"]
    assert spec["clusterIP"] == "None"
    assert spec["publishNotReadyAddresses"] is True
    assert spec["ports"] == [
        {"name": "tcp-8080", "port": 8080, "protocol": "TCP"},
        {"name": "stats", "port": 53, "protocol": "UDP"},
        {"name": "tfjob-port", "port": 2222, "protocol": "TCP"},
    ]
    plain = context(model(role("Worker"), services=ServiceMode.POD))
    assert "ports" not in service_document(plain, "train-worker-0")["spec"]


def test_service_of_the_job_leads_to_all_pods() -> None:
    one, other = ([{"name": "http", "containerPort": number}] for number in (80, 81))
    roles = role("a", template=template(ports=one)), role("b", 2, template=template(ports=other))
    there = context(model(*roles))
    document = service_document(there, "train")
    assert document["spec"]["ports"] == [{"name": "http", "port": 80, "protocol": "TCP"}]
    spec = pod(there, "b", 1).document["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("train-b-1", "train")
    labels = pod(there, "b", 1).document["metadata"]["labels"]
    assert document["spec"]["selector"].items() <= labels.items()


@pytest.mark.parametrize("name", ["train-worker-x", "other-worker-0", "train"])
def test_service_of_no_member_is_refused(name: str) -> None:
    there = context(model(role("Worker", 2), services=ServiceMode.POD))
    with pytest.raises(InvalidJob, match=f"Service team/{name}: is none of job train"):
        service_document(there, name)


def test_port_of_the_member_is_the_container_port() -> None:
    """On one machine two workers cannot both have the port of the template."""
    job = model(role("Worker", 2), framework="TensorFlow")
    there = context(job, blocks=blocks())
    numbers = []
    for index in range(2):
        (container,) = pod(there, "Worker", index).document["spec"]["containers"]
        (port,) = container["ports"]
        numbers.append(port["containerPort"])
        (published,) = service_document(there, f"train-worker-{index}")["spec"]["ports"]
        assert published["port"] == port["containerPort"]
    assert len(set(numbers)) == 2


def test_gang_names_its_pods_and_its_scheduler() -> None:
    worker = role("worker")
    by_backend = {
        backend: pod(
            context(model(worker, scheduling=SchedulingPolicy(backend))), "worker"
        ).document
        for backend in GangBackend
    }
    schedulers = {key: item["spec"].get("schedulerName") for key, item in by_backend.items()}
    assert schedulers == {
        GangBackend.GRANGE: "grange",
        GangBackend.SCHEDULER_PLUGINS: "scheduler-plugins-scheduler",
        GangBackend.VOLCANO: "volcano",
        GangBackend.DISRUPTION_BUDGET: None,
        GangBackend.NONE: None,
    }
    volcano = by_backend[GangBackend.VOLCANO]["metadata"]["annotations"]
    assert volcano["volcano.sh/task-spec"] == "worker"
    assert volcano["scheduling.k8s.io/group-name"].startswith("train-")


def test_check_63_custom_scheduler_is_left_with_a_warning() -> None:
    def with_scheduler(name: str) -> Any:
        body = template()
        body["spec"]["schedulerName"] = name
        return context(model(role("worker"), role("other", template=body)))

    for same in ("", "grange"):
        made = pod(with_scheduler(same), "worker")
        assert made.document["spec"]["schedulerName"] == "grange"
        assert made.events == ()
    there = with_scheduler("mine")
    assert pod(there, "other").document["spec"]["schedulerName"] == "mine"
    made = pod(there, "worker")
    assert "schedulerName" not in made.document["spec"]
    assert [item.reason for item in made.events] == ["SettedPodTemplateSchedulerName"]


def test_indexed_job_has_its_index_in_annotation_and_env() -> None:
    labels = JobLabels(
        operator=("batch.kubernetes.io/job-operator", "grange"),
        job="batch.kubernetes.io/job-name",
        role="",
        index="batch.kubernetes.io/job-completion-index",
        index_annotation="batch.kubernetes.io/job-completion-index",
    )
    job = model(role("", 3), framework="", services=ServiceMode.NONE)
    document = pod(context(job, labels=labels), "", 2).document
    assert document["metadata"]["annotations"] == {labels.index: "2"}
    assert "" not in document["metadata"]["labels"]
    (container,) = document["spec"]["containers"]
    field = {"apiVersion": "v1", "fieldPath": f"metadata.labels['{labels.index}']"}
    assert container["env"] == [{"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": field}}]
    assert document["metadata"]["labels"][labels.index] == "2"
    assert "subdomain" not in document["spec"]


def test_pods_of_a_role_have_one_spec_but_for_host_names() -> None:
    """So that the server checks it once, and clients decode it once."""
    there = context(model(role("worker", 3), role("eval", 2)))
    specs = [pod(there, "worker", index).document["spec"] for index in range(3)]
    assert [spec.pop("hostname") for spec in specs] == [f"train-worker-{n}" for n in range(3)]
    assert specs == [specs[0]] * 3


def test_documents_are_accepted_as_they_are() -> None:
    there = context(model(role("worker", 2), role("eval")))
    document = pod(there, "worker").document
    assert POD.validate(document, None) == []
    assert SERVICE.validate(service_document(there, "train"), None) == []
    assert codec.convert(document, Pod).metadata.name == "train-worker-0"


def test_job_of_the_same_name_has_other_files() -> None:
    job = model(role("worker"))
    again = replace(job, uid="other")
    assert files_name(job) != files_name(again)
    assert files_document(context(model(role("worker"), framework="TensorFlow"))) is None
