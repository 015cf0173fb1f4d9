"""``grange.testing.cluster`` as an operator author uses it, and through clients we did not write."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from grange.api.status import Invalid, NotFound, Timeout
from grange.testing import cluster

pytestmark = pytest.mark.e2e

SLEEP = [sys.executable, "-c", "import time; print('hello', flush=True); time.sleep(3600)"]


def sleeper(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "none", "command": SLEEP}],
        },
    }


@pytest.fixture(scope="module")
def running() -> Iterator[Any]:
    with cluster(nodes=2) as made:
        yield made


def test_a_pod_runs_and_goes(running: Any) -> None:
    running.create(sleeper("one"))
    pod = running.wait("pod", "one")
    assert pod["status"]["phase"] == "Running"
    running.delete("pod", "one")
    running.wait_gone("pod", "one")


def test_errors_are_those_of_the_api(running: Any) -> None:
    with pytest.raises(NotFound, match='pods "nobody" not found'):
        running.get("pods", "nobody")
    with pytest.raises(Invalid, match="replcas"):
        running.create(
            {
                "apiVersion": "grange.dev/v1alpha1",
                "kind": "ReplicationController",
                "metadata": {"name": "typo"},
                "spec": {"replcas": 1},
            }
        )
    with pytest.raises(Timeout, match="not as wished"):
        running.wait("pod", "nobody", timeout_s=0.1)


def test_a_replication_controller_keeps_one_pod_on_each_node(running: Any) -> None:
    running.create(
        {
            "apiVersion": "grange.dev/v1alpha1",
            "kind": "ReplicationController",
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 2,
                "podLabels": {"app": "web"},
                "template": {"spec": sleeper("x")["spec"]},
            },
        }
    )
    running.wait("grc", "web")
    pods = running.list("pods", labels="app=web")
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    running.patch("grc", "web", {"spec": {"replicas": 0}})
    running.wait("grc", "web")
    for pod in pods:
        running.wait_gone("pod", pod["metadata"]["name"])
    running.delete("grc", "web")
    running.wait_gone("grc", "web")


def test_two_clusters_live_side_by_side(running: Any) -> None:
    with cluster() as other:
        other.create(sleeper("twin"))
        running.create(sleeper("twin"))
        theirs, ours = other.wait("pod", "twin"), running.wait("pod", "twin")
        assert theirs["metadata"]["uid"] != ours["metadata"]["uid"]
        assert theirs["status"]["podIP"] != ours["status"]["podIP"]
    running.delete("pod", "twin")
    running.wait_gone("pod", "twin")


def test_the_official_python_client_works_against_it(running: Any) -> None:
    import kubernetes

    kubernetes.config.load_kube_config(str(running.kubeconfig))
    with kubernetes.client.ApiClient() as api:
        core = kubernetes.client.CoreV1Api(api)
        made = core.create_namespaced_pod("default", sleeper("official", labels={"by": "official"}))
        assert made.status.phase == "Pending"
        events = kubernetes.watch.Watch()
        for event in events.stream(
            core.list_namespaced_pod, "default", label_selector="by=official", timeout_seconds=20
        ):
            if event["object"].status.phase == "Running":
                events.stop()
        running.wait("pod", "official")
        assert core.read_namespaced_pod_log("official", "default") == "hello\n"
        listed = core.list_namespaced_pod("default", label_selector="by=official")
        assert [item.metadata.name for item in listed.items] == ["official"]
        core.patch_namespaced_pod("official", "default", {"metadata": {"labels": {"more": "yes"}}})
        with pytest.raises(kubernetes.client.ApiException) as caught:
            core.create_namespaced_pod("default", sleeper("official"))
        assert caught.value.status == 409
        core.delete_namespaced_pod("official", "default")
        running.wait_gone("pod", "official")


def test_kr8s_works_against_it(running: Any) -> None:
    import kr8s
    from kr8s.objects import ConfigMap

    api = kr8s.api(kubeconfig=str(running.kubeconfig))
    made = ConfigMap({"metadata": {"name": "kr8s"}, "data": {"a": "1"}}, api=api)
    made.create()
    assert made.exists()
    made.patch({"data": {"b": "2"}})
    made.refresh()
    assert dict(made.data) == {"a": "1", "b": "2"}
    assert [item.name for item in api.get("configmaps")] == ["kr8s"]
    made.delete()
    assert not made.exists()


def test_the_fixture_gives_a_cluster_of_its_own(grange_cluster: Any) -> None:
    assert [node["metadata"]["name"] for node in grange_cluster.list("nodes")]
    assert grange_cluster.list("pods", "") == []
