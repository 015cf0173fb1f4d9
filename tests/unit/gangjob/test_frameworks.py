"""What each framework's plugin writes into pods: checks 40 to 42."""

from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.unit.gangjob.wired_jobs import (
    blocks,
    context,
    env,
    model,
    own_env,
    pod,
    role,
    template,
    tf_config,
)

from grange.controllers.gangjob.errors import InvalidJob
from grange.controllers.gangjob.frameworks import FRAMEWORKS, completed, jax
from grange.controllers.gangjob.frameworks.framework import JobMember
from grange.controllers.gangjob.frameworks.generic import VALUE_MAX
from grange.controllers.gangjob.job_services import files_document
from grange.controllers.gangjob.model import Rendezvous, Wiring

# --- TensorFlow ------------------------------------------------------------------------------------


def tf_job(*roles: Any, **fields: Any) -> Any:
    return model(*roles, framework="TensorFlow", **fields)


@pytest.mark.parametrize(
    "roles", [[role("Worker")], [role("Chief"), role("Worker", 0)], [role("PS", 0), role("Worker")]]
)
def test_check_40_single_replica_has_no_tf_config(roles: list[Any]) -> None:
    there = context(tf_job(*roles))
    only = next(item.name for item in roles if item.replicas)
    assert "TF_CONFIG" not in env(there, only)


def test_check_40_tf_config_with_parameter_servers() -> None:
    there = context(tf_job(role("Worker", 2), role("PS")))
    assert env(there, "Worker", 1)["TF_CONFIG"] == (
        '{"cluster":{"ps":["train-ps-0.team.svc:2222"],'
        '"worker":["train-worker-0.team.svc:2222","train-worker-1.team.svc:2222"]},'
        '"task":{"type":"worker","index":1},"environment":"cloud"}'
    )
    assert tf_config(there, "PS")["task"] == {"type": "ps", "index": 0}


def test_check_40_tf_config_with_evaluator() -> None:
    there = context(tf_job(role("Chief"), role("Evaluator")))
    found = tf_config(there, "Evaluator")
    assert found["cluster"] == {
        "chief": ["train-chief-0.team.svc:2222"],
        "evaluator": ["train-evaluator-0.team.svc:2222"],
    }
    assert found["task"] == {"type": "evaluator", "index": 0}


def test_check_40_custom_domain_and_port_are_used() -> None:
    ports = [{"name": "tfjob-port", "containerPort": 3333}]
    roles = role("Worker", 2, template=template(ports=ports)), role("PS")
    there = context(tf_job(*roles), domain="tf.training.com")
    assert tf_config(there, "PS")["cluster"] == {
        "ps": ["train-ps-0.team.svc.tf.training.com:2222"],
        "worker": [
            "train-worker-0.team.svc.tf.training.com:3333",
            "train-worker-1.team.svc.tf.training.com:3333",
        ],
    }


def test_check_40_only_framework_container_has_it() -> None:
    body = template("tensorflow")
    body["spec"]["containers"].insert(0, {"name": "sidecar"})
    roles = role("Worker", 2, template=body, container="tensorflow")
    spec = pod(context(tf_job(roles)), "Worker").document["spec"]
    holders = [
        item["name"]
        for item in spec["containers"]
        if any(variable["name"] == "TF_CONFIG" for variable in item["env"])
    ]
    assert holders == ["tensorflow"]


def test_check_41_sparse_cluster_of_worker_and_server() -> None:
    job = tf_job(role("Worker", 3), role("PS", 2), wiring=Wiring(sparse=True))
    there = context(job)
    servers = ["train-ps-0.team.svc:2222", "train-ps-1.team.svc:2222"]
    assert tf_config(there, "Worker") == {
        "cluster": {"ps": servers, "worker": {"0": "train-worker-0.team.svc:2222"}},
        "task": {"type": "worker", "index": 0},
    }
    assert tf_config(there, "PS") == {
        "cluster": {"ps": {"0": servers[0]}},
        "task": {"type": "ps", "index": 0},
    }


def leaders(there: Any) -> list[tuple[str, int]]:
    members = [(item.name, index) for item in there.model.roles for index in range(item.replicas)]
    key = there.labels.leader
    return [
        member
        for member in members
        if pod(there, *member).document["metadata"]["labels"].get(key) == "master"
    ]


def test_leader_is_chief_or_first_worker() -> None:
    assert leaders(context(tf_job(role("Worker", 2), role("Chief")))) == [("Chief", 0)]
    assert leaders(context(tf_job(role("Worker", 2), role("PS")))) == [("Worker", 0)]
    assert leaders(context(model(role("worker", 2)))) == []
    assert leaders(context(model(role("lead", leader=True), role("worker")))) == [("lead", 0)]


# --- PyTorch ---------------------------------------------------------------------------------------


def torch_job(*roles: Any, **fields: Any) -> Any:
    return model(*roles, framework="PyTorch", **fields)


def test_pytorch_master_and_workers_have_ranks() -> None:
    job = torch_job(
        role("Worker", 2), role("Master", leader=True), wiring=Wiring(processes_per_node="4")
    )
    there = context(job)
    common = {
        "PYTHONUNBUFFERED": "1",
        "PET_NPROC_PER_NODE": "4",
        "MASTER_ADDR": "train-master-0",
        "MASTER_PORT": "23456",
        "WORLD_SIZE": "12",
        "PET_MASTER_ADDR": "train-master-0",
        "PET_MASTER_PORT": "23456",
        "PET_NNODES": "3",
    }
    assert own_env(there, "Master") == {**common, "RANK": "0", "PET_NODE_RANK": "0"}
    assert own_env(there, "Worker", 1) == {**common, "RANK": "2", "PET_NODE_RANK": "2"}


@pytest.mark.parametrize(("text", "size"), [("auto", "2"), ("gpu", "2"), ("2", "4"), ("", "2")])
def test_pytorch_world_size_counts_processes(text: str, size: str) -> None:
    job = torch_job(role("Worker"), role("Master"), wiring=Wiring(processes_per_node=text))
    assert env(context(job), "Worker")["WORLD_SIZE"] == size


def test_pytorch_worker_waits_for_name_of_master() -> None:
    secure = {"runAsNonRoot": True}
    body = template(securityContext=secure)
    there = context(torch_job(role("Worker", template=body), role("Master")))
    (waiting,) = pod(there, "Worker").document["spec"]["initContainers"]
    assert (waiting["image"], waiting["securityContext"]) == ("example/train", secure)
    assert "getent hosts train-master-0" in waiting["command"][2]
    assert "initContainers" not in pod(there, "Master").document["spec"]
    addressed = context(torch_job(role("Worker"), role("Master")), blocks=blocks())
    assert "initContainers" not in pod(addressed, "Worker").document["spec"]


def test_check_42_elastic_env() -> None:
    fixed = env(context(torch_job(role("Worker", 2))), "Worker")
    assert not [name for name in fixed if name.startswith("PET_RDZV")]
    rendezvous = Rendezvous(
        identifier="id-1", options=(("timeout", "10"), ("retries", "2")), max_restarts=3
    )
    worker = role("Worker", 2, min_replicas=1, max_replicas=3)
    job = torch_job(worker, wiring=Wiring(processes_per_node="2", rendezvous=rendezvous))
    assert own_env(context(job), "Worker", 1) == {
        "PYTHONUNBUFFERED": "1",
        "PET_NPROC_PER_NODE": "2",
        "PET_NNODES": "1:3",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "train-worker-0:23456",
        "PET_RDZV_ID": "id-1",
        "PET_RDZV_CONF": "timeout=10,retries=2",
        "PET_MAX_RESTARTS": "3",
    }


def test_rendezvous_on_one_machine_names_its_host() -> None:
    job = torch_job(role("worker", 2, min_replicas=1, max_replicas=3))
    there = context(job, blocks=blocks())
    assert env(there, "worker", 0)["PET_RDZV_CONF"] == "is_host=true"
    assert env(there, "worker", 1)["PET_RDZV_CONF"] == "is_host=false"


# --- JAX, XGBoost ----------------------------------------------------------------------------------


def test_jax_env() -> None:
    there = context(model(role("worker", 3), framework="JAX"))
    assert own_env(there, "worker", 2) == {
        "PYTHONUNBUFFERED": "1",
        "COORDINATOR_ADDRESS": "train-worker-0",
        "COORDINATOR_PORT": "6666",
        "NUM_PROCESSES": "3",
        "PROCESS_ID": "2",
        "JAX_COORDINATOR_ADDRESS": "train-worker-0:6666",
        "JAX_NUM_PROCESSES": "3",
        "JAX_PROCESS_ID": "2",
    }


@pytest.mark.parametrize("index", [-1, 3])
def test_check_42_jax_bad_index_is_an_error(index: int) -> None:
    there = context(model(role("worker", 3), framework="JAX"))
    with pytest.raises(InvalidJob, match=rf"replicas: index {index} is none of the 3"):
        pod(there, "worker", index)


def test_check_42_jax_missing_port_is_an_error() -> None:
    """``completed`` adds the port; what did not go through it is not wired to a guess."""
    job = model(role("worker", 2), framework="JAX")
    there = context(job)
    member = JobMember(job, job.roles[0], 0, there.peers)
    with pytest.raises(
        InvalidJob, match=r"containers\[main\]\.ports: there is no port jaxjob-port"
    ):
        jax.FRAMEWORK.wire(member)


def test_xgboost_env() -> None:
    job = model(role("Worker", 2), role("Master", leader=True), framework="XGBoost")
    assert own_env(context(job), "Worker", 1) == {
        "PYTHONUNBUFFERED": "1",
        "MASTER_ADDR": "train-master-0",
        "MASTER_PORT": "9999",
        "WORLD_SIZE": "3",
        "RANK": "2",
        "WORKER_PORT": "9999",
        "WORKER_ADDRS": "train-worker-0,train-worker-1",
    }
    alone = own_env(context(model(role("Master"), framework="XGBoost")), "Master")
    assert {"WORKER_PORT", "WORKER_ADDRS"}.isdisjoint(alone)


# --- Generic, and all of them ----------------------------------------------------------------------


def test_generic_env_and_hosts_file() -> None:
    there = context(model(role("worker", 2), role("data-loader")))
    document = pod(there, "worker", 1, attempt=4).document
    (container,) = document["spec"]["containers"]
    values = {item["name"]: item.get("value", item.get("valueFrom")) for item in container["env"]}
    files = files_document(there)
    assert files is not None
    name = files["metadata"]["name"]
    assert values == {
        "GRANGE_JOB_NAME": "train",
        "GRANGE_ROLE": "worker",
        "GRANGE_INDEX": {
            "fieldRef": {
                "apiVersion": "v1",
                "fieldPath": f"metadata.labels['{there.labels.index}']",
            }
        },
        "GRANGE_REPLICAS": "2",
        "GRANGE_ATTEMPT": "4",
        "GRANGE_HOSTS_FILE": "/etc/grange/hosts",
        **{
            key: {"configMapKeyRef": {"name": name, "key": key, "optional": True}}
            for key in ("GRANGE_WORKER_HOSTS", "GRANGE_DATA_LOADER_HOSTS")
        },
    }
    assert files["data"] == {
        "hosts": (
            "train-worker-0 train-worker-0.train\n"
            "train-worker-1 train-worker-1.train\n"
            "train-data-loader-0 train-data-loader-0.train\n"
        ),
        "GRANGE_WORKER_HOSTS": "train-worker-0.train,train-worker-1.train",
        "GRANGE_DATA_LOADER_HOSTS": "train-data-loader-0.train",
    }
    assert document["metadata"]["labels"][there.labels.index] == "1"
    (mount,) = container["volumeMounts"]
    (volume,) = document["spec"]["volumes"]
    assert mount["name"] == volume["name"]
    assert (mount["mountPath"], volume["configMap"]["name"]) == ("/etc/grange", name)


def test_generic_pod_does_not_grow_with_the_job() -> None:
    """Hosts are in one object; a variable that no program could be started with is left out."""
    small, large = (context(model(role("worker", count))) for count in (100, 9999))
    assert (
        len(str(pod(small, "worker", 50).document))
        <= len(str(pod(large, "worker", 50).document)) + 2
    )
    files = files_document(large)
    assert files is not None
    assert "GRANGE_WORKER_HOSTS" not in files["data"]
    assert files["data"]["hosts"].count("\n") == 9999
    assert all(len(value) <= VALUE_MAX for key, value in files["data"].items() if key != "hosts")


def test_variable_of_the_template_is_kept_with_a_warning() -> None:
    own = template(env=[{"name": "MASTER_ADDR", "value": "mine"}])
    there = context(torch_job(role("worker", 2, template=own)))
    made = pod(there, "worker")
    (container,) = made.document["spec"]["containers"]
    assert [item["value"] for item in container["env"] if item["name"] == "MASTER_ADDR"] == ["mine"]
    assert container["env"][-1]["name"] == "MASTER_ADDR"  # it may refer to all others
    assert [item.reason for item in made.events] == ["EnvironmentKept"]
    assert "env MASTER_ADDR is that of the template" in made.events[0].message


def test_unknown_framework_is_named() -> None:
    with pytest.raises(InvalidJob, match=r'spec\.framework: "Caffe" is not known; use one of Gen'):
        completed(model(role("worker"), framework="Caffe"))


@given(
    framework=st.sampled_from(sorted(FRAMEWORKS)),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    addressed=st.booleans(),
)
def test_wiring_is_deterministic_and_members_agree(
    framework: str, sizes: list[int], *, addressed: bool
) -> None:
    names = ("master", "worker", "eval")[: len(sizes)]
    roles = [
        role(name, count, leader=name == "master") for name, count in zip(names, sizes, strict=True)
    ]
    job = model(*roles, framework=framework)
    one, other = (context(job, blocks=blocks() if addressed else None) for _ in range(2))
    members = [(item.name, index) for item in roles for index in range(item.replicas)]
    found = [pod(one, *member).document for member in members]
    assert found == [pod(other, *member).document for member in members]
    shared = [own_env(one, *member) for member in members]
    for name in (
        "MASTER_ADDR",
        "MASTER_PORT",
        "WORLD_SIZE",
        "COORDINATOR_ADDRESS",
        "NUM_PROCESSES",
    ):
        assert len({values.get(name) for values in shared}) == 1
    for name in ("RANK", "PROCESS_ID"):
        numbers = [int(values[name]) for values in shared if name in values]
        assert sorted(numbers) == list(range(len(numbers)))
    assert len({item["metadata"]["name"] for item in found}) == len(members)
