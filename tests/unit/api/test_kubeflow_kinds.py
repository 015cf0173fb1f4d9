"""TFJob and PyTorchJob: checks 66 and 67 of spec/jobs.md §5, their defaults, and what may change."""

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.api.jobs import complete, faults, fields, job, template

from grange.api import codec, scale, schema, yaml_documents
from grange.api.kinds import PYTORCHJOB, TFJOB
from grange.api.scheme import AnyKind

Document = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONTAINERS = {"TFJob": "tensorflow", "PyTorchJob": "pytorch"}
FIELDS = {"TFJob": "tfReplicaSpecs", "PyTorchJob": "pytorchReplicaSpecs"}
PORTS = {
    "TFJob": {"name": "tfjob-port", "containerPort": 2222},
    "PyTorchJob": {"name": "pytorchjob-port", "containerPort": 23456},
}
both_kinds = pytest.mark.parametrize("info", [TFJOB, PYTORCHJOB], ids=lambda info: info.kind)


def role(info: AnyKind, replicas: int = 1, **more: Any) -> Document:
    return {"replicas": replicas, "template": template(CONTAINERS[info.kind]), **more}


def made(info: AnyKind, roles: Document, name: str = "train", **spec: Any) -> Document:
    return job(info, name, **{FIELDS[info.kind]: roles}, **spec)


def refused(info: AnyKind, roles: Document, **spec: Any) -> list[str]:
    path = f"spec.{FIELDS[info.kind]}"
    return [at.replace(path, "roles") for at in fields(info, made(info, roles, **spec))]


MANIFESTS = """
apiVersion: "kubeflow.org/v1"
kind: "TFJob"
metadata:
  name: "digits"
  namespace: kubeflow
spec:
  runPolicy:
    cleanPodPolicy: None
  tfReplicaSpecs:
    PS:
      replicas: 2
      restartPolicy: Never
      template:
        metadata:
          annotations:
            sidecar.istio.io/inject: "false"
        spec:
          containers:
            - name: tensorflow
              image: registry.example/digits:1.0
              volumeMounts:
                - mountPath: "/train"
                  name: "training"
          volumes:
            - name: "training"
              persistentVolumeClaim:
                claimName: "logs"
    Worker:
      replicas: 4
      restartPolicy: Never
      template:
        metadata:
          creationTimestamp: null
        spec:
          containers:
            - name: tensorflow
              image: registry.example/digits:1.0
              command: ["python", "/opt/digits.py", "--batch_size=150"]
              resources:
                limits:
                  nvidia.com/gpu: 1
---
apiVersion: "kubeflow.org/v1"
kind: PyTorchJob
metadata:
  name: elastic
spec:
  elasticPolicy:
    rdzvBackend: c10d
    minReplicas: 1
    maxReplicas: 3
    maxRestarts: 100
    rdzvConf: [{key: timeout, value: "30"}]
    metrics:
      - type: Resource
        resource:
          name: cpu
          target: {type: Utilization, averageUtilization: 80}
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: registry.example/digits-torch:1.0
              imagePullPolicy: Always
              resources:
                requests:
                  cpu: 4
              command: ["python", "-m", "torch.distributed.run", "/opt/digits.py"]
"""


@pytest.mark.parametrize("document", yaml_documents.load(MANIFESTS), ids=lambda one: one["kind"])
def test_manifests_as_they_are_published_are_accepted(document: Document) -> None:
    info = {"TFJob": TFJOB, "PyTorchJob": PYTORCHJOB}[document["kind"]]
    document["metadata"]["namespace"] = "kubeflow"
    assert faults(info, document) == []
    view = codec.decode_view(codec.encode(complete(info, document)), info.view)
    assert view.metadata.name == document["metadata"]["name"]


# Every field of v1; two forms of a job, because a standalone rendezvous is for a job of one pod.
RUN_POLICY: Document = {
    "cleanPodPolicy": "All",
    "ttlSecondsAfterFinished": 3600,
    "activeDeadlineSeconds": 86_400,
    "backoffLimit": 3,
    "suspend": False,
    "managedBy": "kubeflow.org/training-operator",
    "schedulingPolicy": {
        "minAvailable": 2,
        "queue": "research",
        "minResources": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": 2},
        "priorityClass": "high",
        "scheduleTimeoutSeconds": 120,
    },
}
ELASTIC: Document = {
    "minReplicas": 1,
    "maxReplicas": 4,
    "rdzvBackend": "etcd-v2",
    "rdzvPort": 2379,
    "rdzvHost": "etcd.research",
    "rdzvId": "digits",
    "rdzvConf": [{"key": "timeout", "value": "30"}],
    "standalone": False,
    "nProcPerNode": 2,
    "maxRestarts": 10,
    "metrics": [
        {
            "type": "Resource",
            "resource": {
                "name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 80},
            },
        },
        {
            "type": "Pods",
            "pods": {
                "metric": {"name": "queue", "selector": {"matchLabels": {"a": "b"}}},
                "target": {"type": "AverageValue", "averageValue": "5"},
            },
        },
    ],
}
STATUS: Document = {
    "conditions": [
        {
            "type": "Running",
            "status": "True",
            "reason": "JobRunning",
            "message": "it runs",
            "lastUpdateTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ],
    "replicaStatuses": {
        "Worker": {
            "active": 2,
            "succeeded": 1,
            "failed": 1,
            "selector": "training.kubeflow.org/job-name=digits",
            "labelSelector": {"matchLabels": {"training.kubeflow.org/job-name": "digits"}},
        }
    },
    "startTime": "2026-01-01T00:00:00Z",
    "completionTime": "2026-01-01T01:00:00Z",
    "lastReconcileTime": "2026-01-01T01:00:00Z",
}


def complete_job(info: AnyKind, roles: tuple[str, ...], **spec: Any) -> Document:
    specs = {name: role(info, restartPolicy="ExitCode") for name in roles}
    specs["Worker"] = role(info, 2, restartPolicy="OnFailure")
    return {**made(info, specs, "digits", runPolicy=RUN_POLICY, **spec), "status": STATUS}


@pytest.mark.parametrize(
    ("info", "document"),
    [
        (
            TFJOB,
            complete_job(
                TFJOB,
                ("PS", "Chief", "Evaluator"),
                successPolicy="AllWorkers",
                enableDynamicWorker=True,
            ),
        ),
        (TFJOB, complete_job(TFJOB, ("PS", "Master"), successPolicy="")),
        (PYTORCHJOB, complete_job(PYTORCHJOB, ("Master",), nprocPerNode="auto")),
        (PYTORCHJOB, complete_job(PYTORCHJOB, (), elasticPolicy=ELASTIC)),
    ],
)
def test_every_field_of_v1_is_accepted_and_kept(info: AnyKind, document: Document) -> None:
    assert faults(info, document) == []
    kept = complete(info, document)
    assert kept["status"] == STATUS
    spec, wanted = kept["spec"], document["spec"]
    assert spec["runPolicy"] == RUN_POLICY
    assert {name: spec[name] for name in ("elasticPolicy", "nprocPerNode") if name in spec} == {
        name: wanted[name] for name in ("elasticPolicy", "nprocPerNode") if name in wanted
    }
    view = codec.decode_view(codec.encode(kept), info.view)
    assert view.status.replica_statuses["Worker"].active == 2
    assert view.spec.run_policy.scheduling_policy.min_resources["nvidia.com/gpu"] == 2


@both_kinds
def test_fields_that_v1_does_not_have_are_refused_by_path(info: AnyKind) -> None:
    path = f"spec.{FIELDS[info.kind]}[Worker]"
    roles = {"Worker": {**role(info), "minReplicas": 1}}
    assert fields(info, made(info, roles)) == [f"{path}.minReplicas"]
    worker = {"Worker": role(info)}
    assert fields(info, made(info, worker, cleanPodPolicy="All")) == ["spec.cleanPodPolicy"]
    policy = {"schedulingPolicy": {"backend": "Volcano"}}
    found = fields(info, made(info, worker, runPolicy=policy))
    assert found == ["spec.runPolicy.schedulingPolicy.backend"]


@both_kinds
def test_check_66_jobs_that_cannot_run_are_refused(info: AnyKind) -> None:
    named = "roles[Worker].template.spec.containers"
    nameless = {"template": {"spec": {"containers": [{"name": "other", "image": "a"}]}}}
    without_image = template(CONTAINERS[info.kind])
    del without_image["spec"]["containers"][0]["image"]
    for roles, found in (
        ({}, "roles"),
        ({"Worker": None}, "roles"),
        ({"Worker": {}}, "roles[Worker].template"),
        ({"Worker": {"template": {}}}, "roles[Worker].template"),
        ({"Worker": {"template": {"spec": {"containers": []}}}}, named),
        ({"Worker": nameless}, named),
        ({"Worker": {"template": without_image}}, f"{named}[0].image"),
        ({"Master": role(info, 2), "Worker": role(info)}, "roles[Master].replicas"),
        ({"Worker": role(info, -1)}, "roles[Worker].replicas"),
        ({"Worker": role(info, 100_001)}, "roles[Worker].replicas"),
        ({"Worker": role(info, 0)}, "roles"),
        ({"Launcher": role(info)}, "roles[Launcher]"),
        ({"Worker": role(info), "worker": role(info)}, "roles[worker]"),
        ({"Worker": role(info, restartPolicy="Maybe")}, "roles[Worker].restartPolicy"),
        ({"Worker": role(info, replica=2)}, "roles[Worker].replica"),
    ):
        assert refused(info, roles) == [found], roles
    missing = job(info)
    assert fields(info, missing) == [f"spec.{FIELDS[info.kind]}"]


def test_check_66_tensorflow_has_one_chief_and_one_evaluator() -> None:
    one = role(TFJOB)
    assert refused(TFJOB, {"Chief": role(TFJOB, 2)}) == ["roles[Chief].replicas"]
    assert refused(TFJOB, {"Chief": one, "Master": one}) == ["roles[Master]"]
    assert refused(TFJOB, {"Worker": one, "Evaluator": role(TFJOB, 2)}) == [
        "roles[Evaluator].replicas"
    ]
    assert refused(TFJOB, {"Chief": one, "Worker": one, "PS": one, "Evaluator": one}) == []


@both_kinds
def test_check_67_defaults_are_filled_in(info: AnyKind) -> None:
    roles = {"worker": {"template": template(CONTAINERS[info.kind])}}
    spec = complete(info, made(info, roles))["spec"]
    worker = spec[FIELDS[info.kind]]["worker"]
    assert worker["replicas"] == 1
    assert worker["restartPolicy"] == {"TFJob": "Never", "PyTorchJob": "OnFailure"}[info.kind]
    assert worker["template"]["spec"]["containers"][0]["ports"] == [PORTS[info.kind]]
    assert spec["runPolicy"] == {"cleanPodPolicy": "Running", "suspend": False}


@both_kinds
def test_check_67_port_is_appended_only_where_it_is_absent(info: AnyKind) -> None:
    name = CONTAINERS[info.kind]
    own = {"name": PORTS[info.kind]["name"], "containerPort": 5000}
    other = {"name": "metrics", "containerPort": 9100}
    for given, found in (([own], [own]), ([other], [other, PORTS[info.kind]])):
        made_of = template(name)
        made_of["spec"]["containers"].insert(0, {"name": "side", "image": "a", "command": ["a"]})
        made_of["spec"]["containers"][1]["ports"] = given
        document = complete(info, made(info, {"Worker": {"template": made_of}}))
        containers = document["spec"][FIELDS[info.kind]]["Worker"]["template"]["spec"]["containers"]
        assert "ports" not in containers[0]
        assert containers[1]["ports"] == found
        again = copy.deepcopy(document)
        schema.apply_defaults(again, info)
        assert again == document


@both_kinds
@pytest.mark.parametrize("spelled", ["worker", "WORKER", "Worker"])
def test_check_67_case_of_types_does_not_matter(info: AnyKind, spelled: str) -> None:
    document = made(info, {spelled: role(info, 3)})
    assert fields(info, document) == []
    scaling = info.scale
    assert scaling is not None
    document["metadata"]["uid"] = "u"
    assert scale.shown(scaling, document)["spec"] == {"replicas": 3}
    wanted = scale.scaled(scaling, document, 5)["spec"][FIELDS[info.kind]]
    assert {name: item["replicas"] for name, item in wanted.items()} == {spelled: 5}


@both_kinds
def test_names_leave_room_for_the_type_and_the_index(info: AnyKind) -> None:
    roles = {"Worker": role(info, 10)}
    assert fields(info, made(info, roles, name="a" * 54)) == []
    assert fields(info, made(info, roles, name="a" * 55)) == ["metadata.name"]
    assert "metadata.name" in fields(info, made(info, roles, name="1st"))


@both_kinds
def test_run_policy_follows_the_common_rules(info: AnyKind) -> None:
    roles = {"Worker": role(info, 2)}
    for policy, field in (
        ({"cleanPodPolicy": "Some"}, "cleanPodPolicy"),
        ({"backoffLimit": -1}, "backoffLimit"),
        ({"managedBy": "x"}, "managedBy"),
        ({"schedulingPolicy": {"minAvailable": 3}}, "schedulingPolicy.minAvailable"),
        ({"schedulingPolicy": {"backend": "Grange"}}, "schedulingPolicy.backend"),
    ):
        assert refused(info, roles, runPolicy=policy) == [f"spec.runPolicy.{field}"]


def test_success_policy_is_one_of_two() -> None:
    roles = {"Worker": role(TFJOB)}
    assert refused(TFJOB, roles, successPolicy="AllWorkers") == []
    assert refused(TFJOB, roles, successPolicy="") == []
    assert refused(TFJOB, roles, successPolicy="Some") == ["spec.successPolicy"]


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"minReplicas": 3}, "minReplicas"),
        ({"minReplicas": 0}, "minReplicas"),
        ({"maxReplicas": 1}, "maxReplicas"),
        ({"rdzvBackend": "zoo"}, "rdzvBackend"),
        ({"rdzvPort": 0}, "rdzvPort"),
        ({"maxRestarts": -1}, "maxRestarts"),
        ({"nProcPerNode": 0}, "nProcPerNode"),
        ({"rdzvConf": [{"key": "a"}]}, "rdzvConf[0].value"),
        ({"rdzvConf": [{"key": "a=b", "value": "c"}]}, "rdzvConf[0].key"),
        ({"minReplica": 1}, "minReplica"),
    ],
)
def test_elastic_policies_that_cannot_hold_are_refused(policy: Document, field: str) -> None:
    roles = {"Worker": role(PYTORCHJOB, 2)}
    assert refused(PYTORCHJOB, roles, elasticPolicy=policy) == [f"spec.elasticPolicy.{field}"]


def test_elastic_jobs_have_workers() -> None:
    roles = {"Master": role(PYTORCHJOB)}
    assert refused(PYTORCHJOB, roles, elasticPolicy={}) == ["roles[Worker]"]


@pytest.mark.parametrize(
    ("processes", "ok"),
    [("auto", True), ("gpu", True), ("8", True), ("0", False), ("many", False), ("-1", False)],
)
def test_processes_of_a_pod_are_a_number_or_found_out(processes: str, ok: bool) -> None:
    found = refused(PYTORCHJOB, {"Worker": role(PYTORCHJOB)}, nprocPerNode=processes)
    assert found == ([] if ok else ["spec.nprocPerNode"])
    twice = refused(
        PYTORCHJOB,
        {"Worker": role(PYTORCHJOB)},
        nprocPerNode="2",
        elasticPolicy={"nProcPerNode": 2},
    )
    assert twice == ["spec.elasticPolicy.nProcPerNode"]


@pytest.mark.parametrize(
    ("info", "spec", "ok"),
    [
        (TFJOB, {}, False),
        (TFJOB, {"enableDynamicWorker": True}, True),
        (PYTORCHJOB, {}, False),
        (PYTORCHJOB, {"elasticPolicy": {"maxReplicas": 8}}, True),
    ],
)
def test_check_72_workers_scale_where_they_may_come_and_go(
    info: AnyKind,
    spec: Document,
    ok: bool,
) -> None:
    old = complete(info, made(info, {"Worker": role(info, 2), "Master": role(info)}, **spec))
    new = copy.deepcopy(old)
    new["spec"][FIELDS[info.kind]]["Worker"]["replicas"] = 4
    path = f"spec.{FIELDS[info.kind]}[Worker].replicas"
    assert fields(info, new, old) == ([] if ok else [path])
    old["status"] = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    assert fields(info, new, old) == [path]


@both_kinds
def test_templates_change_only_while_suspended(info: AnyKind) -> None:
    old = complete(info, made(info, {"Worker": role(info)}))
    new = copy.deepcopy(old)
    container = new["spec"][FIELDS[info.kind]]["Worker"]["template"]["spec"]["containers"][0]
    container["image"] = "trainer:2"
    assert fields(info, new, old) == [f"spec.{FIELDS[info.kind]}[Worker].template"]
    for document in (new, old):
        document["spec"]["runPolicy"]["suspend"] = True
    assert fields(info, new, old) == []


@both_kinds
def test_what_has_no_effect_is_warned_about(info: AnyKind) -> None:
    more: Document = (
        {"elasticPolicy": {"metrics": [{"type": "Resource"}]}} if info is PYTORCHJOB else {}
    )
    made_of = template(CONTAINERS[info.kind], restartPolicy="Always")
    document = complete(info, made(info, {"Worker": {"template": made_of}}, **more))
    warnings = [*info.review(document, None, NOW)]
    assert any("SettedPodTemplateRestartPolicy" in warning for warning in warnings)
    assert any("HorizontalPodAutoscaler" in item for item in warnings) is bool(more)
