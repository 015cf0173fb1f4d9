"""``grange rc`` and ``grange farm`` as people use them, and what stands in their way."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.kubectl import find
from tests.e2e.planes import LIMIT_S, Plane, eventually, pod

pytestmark = pytest.mark.e2e


class Rc(Plane):
    """A control plane, and ``grange rc`` with options before what follows ``--``."""

    def rc(self, verb: str, *words: str, code: int = 0) -> str:
        words = ("--kubeconfig", str(self.kubeconfig), *words)
        done = self.cli.run("rc", *verb.split(" "), *words)
        assert done.returncode == code, (verb, words, done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Rc]:
    with Rc(tmp_path / "data") as made:
        yield made


def names(plane: Rc) -> list[str]:
    return plane.grange("get", "pods", "-o", "name").split()


def test_a_service_from_create_to_delete(plane: Rc, tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(pod("x", "sleep", "1000"))
    made = plane.grange(
        *("rc", "create", "web", "-f", str(manifest), "--placement", "Packed"),
        *("--label", "team=a", "--pod-label", "tier=front"),
        *("--node-selector", "grange.dev/machine"),
    )
    assert "web created" in made
    assert "it has no replicas yet" in made
    assert names(plane) == []
    assert "3/3 ready" in plane.grange("rc", "scale", "web", "--replicas", "3", "--wait")
    status = " ".join(plane.grange("rc", "status", "web").split())
    for words in ("3 wanted, 3 there, 3 ready", "Owner: up-", "ReplicasReady", "web-2 1/1"):
        assert words in status
    assert json.loads(plane.grange("rc", "status", "web", "-o", "json"))["owner"].startswith("up-")
    assert "team=a" not in plane.grange("rc", "list")
    assert plane.grange("rc", "list", "-l", "team=a", "-o", "name").endswith("/web\n")
    assert "sleep" in plane.grange("rc", "get", "web", "--template")

    assert "web asks for 2" in plane.grange("rc", "remove-pod", "web-0", "--yes")
    eventually(lambda: names(plane) == ["pod/web-1", "pod/web-2"], "this pod and no other")

    plane.grange("rc", "disable", "web")
    assert "disabled" in plane.grange("rc", "scale", "web", "--add", "1")
    assert "enable web" in plane.grange("rc", "remove-pod", "web-1", "-y", code=1)
    plane.grange("rc", "enable", "web")
    assert "is Dynamic" in plane.grange("rc", "set-strategy", "web", "Dynamic")
    assert "unchanged" in plane.grange("rc", "update-template", "web", "-f", str(manifest), "-y")

    assert "asks for 3 replicas" in plane.grange("rc", "delete", "web", "--yes", code=1)
    assert "protected" in plane.grange("delete", "grc/web", code=1)
    assert "deleted" in plane.grange("rc", "delete", "web", "--force", "--yes")
    eventually(lambda: "No controllers" in plane.grange("rc", "list"), "the controller goes")
    assert len(names(plane)) == 3, "the pods stay"

    refused = plane.grange("rc", "create", "web", "-f", str(manifest), code=1)
    assert "running pods without a controller (3)" in refused, "at none they would be removed"
    assert "grange apply with spec.replicas: 3" in refused
    assert "No controllers" in plane.grange("rc", "list")
    assert len(names(plane)) == 3


def test_kubectl_is_held_to_the_protection(shared: Rc) -> None:
    shared.rc("create", "held", "--placement", "Packed", "--", "sleep", "1000")
    shared.grange("rc", "scale", "held", "--replicas", "1")
    words = [str(find()), "--kubeconfig", str(shared.kubeconfig), "delete", "grc", "held"]
    refused = subprocess.run(words, check=False, capture_output=True, text=True, timeout=LIMIT_S)
    assert refused.returncode == 1
    assert "it is protected and asks for 1 replica:" in refused.stderr
    shared.grange("rc", "scale", "held", "--replicas", "0", "--yes")
    assert subprocess.run(words, check=False, capture_output=True, timeout=LIMIT_S).returncode == 0


@pytest.mark.parametrize(
    ("words", "reported", "code"),
    [
        (("create", "x"), "no pod template; give one of", 64),
        (("create", "x", "--node-selector", "a in", "--", "sleep"), "--node-selector: label", 64),
        (("create", "x", "--strategy", "Cattle", "--", "sleep"), "--strategy", 64),
        (("create", "x", "--pod-label", "nothing", "--", "sleep"), "KEY=VALUE", 64),
        (("create", "x", "-f", "FILE"), "spec.replicas is missing", 1),
        (("scale", "x", "--replicas", "-1"), "--replicas", 64),
        (("scale", "x"), "--replicas N or --add N", 64),
        (("scale", "x", "--replicas", "1"), "not found", 1),
        (("set-strategy", "x", "cattle"), "Static", 64),
        (("remove-pod", "x"), "not found", 1),
        (("drain-node", "x", "vm-1"), "not found", 1),
        (("undrain-node", "x", "vm-1"), "not found", 1),
        (("pause-transfers", "x"), "not found", 1),
        (("unlock-transfers", "x"), "not found", 1),
        (("enable", "x"), "not found", 1),
        (("status", "x"), "not found", 1),
        (("rollout status", "x"), "not found", 1),
        (("rollout pause", "x"), "not found", 1),
        (("rollout resume", "x"), "not found", 1),
        (("rollout history", "x"), "not found", 1),
        (("rollout start", "x", "--restart"), "not found", 1),
        (("delete", "x"), "not found", 1),
        (("rollout start", "x", "--from", "x", "--desired", "1", "--minimum", "0"), "itself", 64),
        (("rollout start", "x", "--from", "y"), "--desired", 64),
        (("rollout start", "x"), "give one of -f FILE", 64),
        (("rollout undo", "x", "--to-revision", "0"), "--to-revision", 64),
    ],
)
def test_bad_input_is_named(shared: Rc, words: tuple[str, ...], reported: str, code: int) -> None:
    file = shared.directory.parent / "controller.yaml"
    template = {"spec": {"containers": [{"name": "a", "command": ["sleep"]}]}}
    kind = {"apiVersion": "grange.dev/v1alpha1", "kind": "ReplicationController"}
    file.write_text(json.dumps({**kind, "metadata": {"name": "x"}, "spec": {"template": template}}))
    given = [str(file) if word == "FILE" else word for word in words]
    stated = shared.rc(*given, code=code)
    assert reported in stated
    assert "Traceback" not in stated


def test_what_lowers_is_asked_for_and_refused_without_a_terminal(shared: Rc) -> None:
    shared.rc("create", "web", "--placement", "Packed", "--", "sleep", "99")
    shared.grange("rc", "scale", "web", "--replicas", "2")
    for words in (
        ("scale", "web", "--replicas", "1"),
        ("scale", "web", "--add", "-2"),
        ("delete", "web", "--force"),
        ("rollout", "start", "web", "--restart"),
    ):
        assert "add --yes" in shared.grange("rc", *words, code=1), words
    assert shared.get("grc", "web")["spec"]["replicas"] == 2


def test_replicas_move_between_two_controllers_and_again(shared: Rc) -> None:
    for name in ("blue", "green"):
        shared.rc("create", name, "--placement", "Packed", "--", "sleep", "1000")
    shared.grange("rc", "scale", "blue", "--replicas", "2", "--wait")
    move = ("rc", "rollout", "start", "green", "--from", "blue", "--desired", "2", "--minimum", "1")
    shared.grange(*move, "--leave-old", "--yes")
    shared.grange("rc", "rollout", "status", "green")
    eventually(lambda: shared.get("grc", "blue")["spec"]["replicas"] == 0, "all have moved")
    shared.grange("rc", "scale", "green", "--replicas", "0", "--yes")
    shared.grange("rc", "scale", "blue", "--replicas", "2", "--wait")
    assert "started" in shared.grange(*move, "--leave-old", "--yes"), "one that is over makes room"
    shared.grange("rc", "rollout", "status", "green")


def test_farm_shows_its_members_and_takes_the_word_to_go_on(shared: Rc) -> None:
    shown = shared.grange("farm", "status")
    assert shown.split()[:6] == ["MEMBER", "STATE", "RENEWED", "REPLICATION", "SERVICES", "ALERTS"]
    assert "Active" in shown
    members = json.loads(shared.grange("farm", "status", "-o", "json"))["members"]
    assert members[0]["owns"]["services"] >= 4
    assert "add --yes" in shared.grange("farm", "resume", code=1)
    assert "deletions go on" in shared.grange("farm", "resume", "--yes")
    first = shared.get("configmap", "grange-farm", "-n", "kube-system")["metadata"]["annotations"]
    shared.grange("farm", "resume", "--yes")
    again = shared.get("configmap", "grange-farm", "-n", "kube-system")["metadata"]["annotations"]
    assert first.keys() == again.keys()
    assert first != again, "every word is a new one"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rc]:
    with Rc(tmp_path_factory.mktemp("rc") / "data") as made:
        yield made


def test_a_node_is_drained_and_the_history_shows(tmp_path: Path) -> None:
    plane = Rc(tmp_path / "data", nodes=3)
    plane.start()
    try:
        manifest = tmp_path / "pod.yaml"
        manifest.write_text(pod("x", "sleep", "1000"))
        plane.grange("rc", "create", "web", "-f", str(manifest), "--placement", "OnePerNode")
        plane.grange("rc", "scale", "web", "--replicas", "2", "--wait")
        first, second = sorted(nodes(plane))
        assert "starts no transfers for 5m" in plane.rc("pause-transfers", "web", "--for", "5m")
        asked = f"Move 1 pod of web off {first}?"
        assert asked in plane.rc("drain-node", "web", first, code=1)
        assert f"leaves node {first}" in plane.rc("drain-node", "web", first, "--yes")
        eventually(
            lambda: "Locked" in plane.grange("get", "grc", "web", "-o", "json"), "the lock is shown"
        )
        plane.rc("unlock-transfers", "web")
        assert f"no pod on {first}" in plane.rc("drain-node", "web", first, "--wait", "--yes")
        left = sorted(nodes(plane))
        assert first not in left
        assert len(left) == 2
        plane.rc("drain-node", "web", second, "--shrink", code=1)
        done = plane.rc("drain-node", "web", second, "--shrink", "--wait", "--yes")
        assert "1 replica is wanted" in done
        assert nodes(plane) == [node for node in left if node != second]
        plane.rc("undrain-node", "web", first)
        for verb in ("drain-node", "undrain-node"):
            refused = plane.rc(verb, "web", "no-such-node", code=1)
            assert 'nodes "no-such-node" not found; grange get nodes lists the nodes' in refused
        assert "no-such-node" not in plane.grange("get", "grc", "web", "-o", "json")
        reported = plane.grange("history", "grc/web")
        for words in ("NodeTransferStarted", "NodeTransferCompleted", f"web-{first}: {first} to "):
            assert words in reported
        records = json.loads(plane.grange("history", "web", "-o", "json"))["items"]
        events = [item["spec"]["event"] for item in records]
        assert events[0] in {"RolloutStarted", "MembershipChanged"}
        assert [len(item["spec"].get("members", ())) for item in records][-1] == 1
        assert "no other kind has a history" in plane.grange(
            "history", f"pod/web-{second}", code=64
        )
        assert "NotFound" in plane.grange("history", "none", code=1)
    finally:
        plane.stop()


def nodes(plane: Rc) -> list[str]:
    shown = plane.grange("get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}")
    return shown.split()
