"""Sessions, jobs and leases in a cluster of others, with the account and kinds that ``grange install`` prints.

The API server is ours, or Kubernetes' own where ``$GRANGE_TEST_KUBE_BIN`` has it; see ``foreign_cluster``.
"""

from collections.abc import Iterator

import pytest
from tests.e2e.planes import eventually
from tests.support.foreign_cluster import ForeignCluster, foreign_cluster, gang_job, session

pytestmark = pytest.mark.e2e

LEASED = "grange.dev/machine-lease"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForeignCluster]:
    with foreign_cluster(tmp_path_factory.mktemp("foreign")) as made:
        made.join("one")
        yield made


def is_free(cluster: ForeignCluster) -> bool:
    """No pods, no leases, and no marks on nodes."""
    marked = [n for n in cluster.get("nodes")["items"] if LEASED in n["metadata"]["labels"]]
    return not (marked or cluster.there("pods") or cluster.there("ml"))


@pytest.mark.parametrize(
    ("name", "driver", "verdict", "phase"),
    [("good", "pass", "Passed", "Succeeded"), ("bad", "fail", "Failed", "Failed")],
)
def test_verdict_is_that_of_the_driver(
    cluster: ForeignCluster, name: str, driver: str, verdict: str, phase: str
) -> None:
    cluster.apply(session(name, driver))
    cluster.reaches("ts", name, phase)
    status = cluster.status("ts", name)
    assert status["verdict"] == verdict
    assert [one["type"] for one in status["events"]][:4] == ["QUEUE", "ACCEPT", "PROVISION", "RUN"]
    assert {one["node"] for one in status["components"]} >= {"d0"}
    table = cluster.kubectl("get", "ts", name)
    assert [name, phase, verdict] == table.splitlines()[1].split()[:3]
    eventually(lambda: is_free(cluster), "its machines are free")


def test_session_is_cancelled(cluster: ForeignCluster) -> None:
    cluster.apply(session("long", "serve"))
    cluster.reaches("ts", "long", "Running")
    cluster.kubectl("patch", "ts", "long", "--type=merge", "-p", '{"spec": {"cancel": "Collect"}}')
    cluster.reaches("ts", "long", "Cancelled")
    eventually(lambda: is_free(cluster), "its machines are free")


def test_impossible_session_ends_at_once(cluster: ForeignCluster) -> None:
    driver = {**session("huge", "pass")["spec"]["driver"], "pool": "nowhere"}
    cluster.apply(session("huge", "pass", driver=driver))
    cluster.reaches("ts", "huge", "Errored")
    assert cluster.status("ts", "huge")["reason"] == "PoolUnknown"


@pytest.mark.parametrize(
    ("name", "words", "condition"),
    [("done", ("pass", "pass"), "Succeeded"), ("broken", ("serve", "crash"), "Failed")],
)
def test_gang_ends_as_its_members(
    cluster: ForeignCluster, name: str, words: tuple[str, str], condition: str
) -> None:
    cluster.apply(gang_job(name, words))
    cluster.reaches("gj", name, condition)
    assert name in cluster.kubectl("get", "gj", name)
    cluster.kubectl("delete", "gj", name, "--timeout=120s")
    eventually(lambda: is_free(cluster), "its pods are gone")


def test_lease_has_its_machines_until_it_is_deleted(cluster: ForeignCluster) -> None:
    lease = {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "MachineLease",
        "metadata": {"name": "mine"},
        "spec": {"machines": [{"pool": "workers", "count": 3}]},
    }
    cluster.apply(lease)
    cluster.reaches("ml", "mine", "Granted")
    machines = {one["node"] for one in cluster.status("ml", "mine")["machines"]}
    assert machines == {"w0", "w1", "w2"}
    cluster.apply({**lease, "metadata": {"name": "next"}})
    eventually(
        lambda: cluster.status("ml", "next").get("reason") == "PoolAvailability", "the next waits"
    )
    cluster.kubectl("delete", "ml", "mine")
    cluster.reaches("ml", "next", "Granted")
    # Not renewed, it ends by itself.
    cluster.kubectl("patch", "ml", "next", "--type=merge", "-p", '{"spec": {"ttlSeconds": 1}}')
    cluster.reaches("ml", "next", "Expired")
    cluster.kubectl("delete", "ml", "next")
    eventually(lambda: is_free(cluster), "the machines are free")


def test_another_member_finishes_what_a_killed_one_began(cluster: ForeignCluster) -> None:
    cluster.apply(session("kept", "serve"), gang_job("kept", ("serve", "serve")))
    cluster.reaches("ts", "kept", "Running")
    cluster.reaches("gj", "kept", "Running")
    before = {pod["metadata"]["uid"] for pod in cluster.get("pods")["items"]}
    cluster.kill("one")
    cluster.apply(session("after", "pass"))
    cluster.join("two")
    cluster.kubectl("patch", "ts", "kept", "--type=merge", "-p", '{"spec": {"cancel": "Now"}}')
    cluster.reaches("ts", "kept", "Cancelled")
    cluster.reaches("ts", "after", "Succeeded")
    left = {pod["metadata"]["uid"] for pod in cluster.get("pods")["items"]}
    assert len(left) == 3, "the gang runs on"
    assert left <= before, "none of its pods was replaced"
    cluster.kubectl("delete", "gj", "kept", "--timeout=120s")
    eventually(lambda: is_free(cluster), "nothing is left")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"servers": [{"name": "x", "count": 0, "template": {}}]},
            "count",
        ),  # 1.20 leaves out which
        ({"concurrency": {"group": "g", "policy": "Never"}}, "spec.concurrency.policy"),
        ({"timeouts": {"runSeconds": -1}}, "spec.timeouts.runSeconds"),
    ],
)
def test_invalid_sessions_are_refused(
    cluster: ForeignCluster, change: dict[str, object], words: str
) -> None:
    document = session("wrong", "pass", **change)
    refused = cluster.kubectl("create", "-f", "-", stdin=str(document), code=1)
    assert words in refused


def test_defaults_are_filled_in_and_no_status_is_taken(cluster: ForeignCluster) -> None:
    document = session("plain", "pass", cancel="Now")
    cluster.apply({**document, "status": {"phase": "Succeeded"}})
    found = cluster.get("ts", "plain")
    assert found["spec"]["timeouts"]["runSeconds"] == 900
    cluster.reaches("ts", "plain", "Cancelled")
    assert not cluster.refusals()
