"""Names, keys and labels of a job's pods and Services."""

import pytest
from hypothesis import given, strategies as st

from grange.api.kinds.pod import Pod
from grange.api.meta import ObjectKey, ObjectMeta
from grange.controllers.gangjob.adapter import JobLabels
from grange.controllers.gangjob.job_names import (
    InvalidReplicaLabel,
    gen_expectation_pods_key,
    gen_expectation_services_key,
    gen_general_name,
    gen_labels,
    gen_replica_labels,
    replica_index,
    replica_type,
)

LABELS = JobLabels(
    operator=("example.com/operator", "render"),
    job="example.com/job",
    role="example.com/role",
    index="example.com/index",
)


@pytest.mark.parametrize(
    ("job", "role", "index", "name"),
    [
        ("1/2/3/4/5", "worker", 1, "1-2-3-4-5-worker-1"),
        ("train", "Worker", 0, "train-worker-0"),
        ("train", "PS", "12", "train-ps-12"),
    ],
)
def test_check_1_general_name_joins_and_lowers(
    job: str, role: str, index: int | str, name: str
) -> None:
    assert gen_general_name(job, role, index) == name


@given(st.text(), st.text(), st.integers(min_value=0))
def test_check_1_general_name_has_no_slash(job: str, role: str, index: int) -> None:
    assert "/" not in gen_general_name(job, role, index)


def test_check_2_expectation_keys_lower_only_the_role() -> None:
    key = ObjectKey("ns", "Job")
    assert gen_expectation_pods_key(key, "Worker") == "ns/Job/worker/pods"
    assert gen_expectation_services_key(key, "Worker") == "ns/Job/worker/services"
    assert gen_expectation_pods_key(ObjectKey("", "job"), "ps") == "job/ps/pods"
    keys = {
        make(key, role)
        for make in (gen_expectation_pods_key, gen_expectation_services_key)
        for role in ("PS", "Worker")
    }
    assert len(keys) == 4


def test_check_3_labels_name_operator_and_job() -> None:
    assert gen_labels(LABELS, "test/key") == {
        "example.com/operator": "render",
        "example.com/job": "test-key",
    }
    assert gen_replica_labels(LABELS, "a", "Worker", 3) == {
        **gen_labels(LABELS, "a"),
        "example.com/role": "worker",
        "example.com/index": "3",
    }


def labelled(**labels: str) -> Pod:
    marks = {f"example.com/{key}": value for key, value in labels.items()}
    return Pod(metadata=ObjectMeta(namespace="ns", name="p", labels=marks))


def test_check_5_index_is_a_number_and_role_verbatim() -> None:
    assert replica_index(LABELS, labelled(index="07")) == 7
    assert replica_type(LABELS, labelled(role="Worker")) == "Worker"


@pytest.mark.parametrize("pod", [labelled(), *(labelled(index=i) for i in ("", "-1", "x", "²"))])
def test_check_5_missing_or_malformed_index_is_an_error(pod: Pod) -> None:
    with pytest.raises(InvalidReplicaLabel, match=r"metadata\.labels\[example.com/index\] of ns/p"):
        replica_index(LABELS, pod)


def test_check_5_missing_role_is_an_error() -> None:
    with pytest.raises(InvalidReplicaLabel, match=r"metadata\.labels\[example.com/role\] of ns/p"):
        replica_type(LABELS, labelled(index="1"))
