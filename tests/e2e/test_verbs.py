"""The verbs against a real control plane: what people type, what they read, and exit codes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import yaml
from tests.e2e.planes import LIMIT_S, Plane, eventually, pod

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parent.parent.parent
WARM_CLIENT = Path(__file__).with_name("warm_client.py")
_NUMBERS = count()
QUICKSTART = ROOT / "examples" / "quickstart" / "web.yaml"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with Plane(tmp_path_factory.mktemp("verbs") / "data", nodes=3) as made:
        yield made


@pytest.fixture
def plane(server: Plane, tmp_path: Path) -> Iterator[Plane]:
    """The server of all tests, seen from a namespace of one: its kubeconfig names it."""
    namespace = f"test-{next(_NUMBERS)}"
    made = Plane(tmp_path / "data")
    made.directory.mkdir()
    config = yaml.safe_load(server.kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = namespace
    made.kubeconfig.write_text(yaml.safe_dump(config))
    made.kubeconfig.chmod(0o600)
    manifest = f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}"
    server.grange("apply", "-f", "-", stdin=manifest)
    eventually(lambda: "kube-root-ca.crt" in made.grange("get", "cm"), "its first object")
    yield made
    server.grange("delete", "namespace", namespace)


def test_a_service_from_apply_to_delete(plane: Plane) -> None:
    shown = plane.grange("apply", "-f", str(QUICKSTART), "--wait")
    assert "replicationcontroller.grange.dev/web created" in shown
    assert "3/3 ready" in shown
    assert "\033[" not in shown, "no colors where there is no terminal"
    assert "unchanged" in plane.grange("apply", "-f", str(QUICKSTART))

    listed = plane.grange("get", "pods", "-l", "app=web", "-o", "wide")
    assert listed.splitlines()[0].split()[:3] == ["NAME", "READY", "STATUS"]
    assert listed.count("1/1") == 3
    names = plane.grange("get", "pods", "-o", "name").split()
    assert all(name.startswith("pod/web-") for name in names)
    assert len(names) == 3

    described = plane.grange("describe", "grc/web")
    assert "Conditions:" in described
    assert "SuccessfulCreate" in described
    assert plane.grange("describe", names[0]).count("Ready") >= 1

    logs = plane.grange("logs", "grc/web")
    assert logs.count("serving on") == 3
    assert logs.count("[web-") >= 3
    one = plane.grange("logs", names[0].removeprefix("pod/"), "--tail", "1", "--timestamps")
    assert one.startswith("20")

    assert "deleted" in plane.grange("delete", "-f", str(QUICKSTART))
    eventually(
        lambda: "No resources found" in plane.grange("get", "pods"),
        "the pods end in the background",
    )


def test_update_to_a_missing_program_exits_1_with_the_cause(plane: Plane, tmp_path: Path) -> None:
    changed = tmp_path / "web.yaml"
    plane.grange("apply", "-f", str(QUICKSTART), "--wait")
    changed.write_text(QUICKSTART.read_text().replace("[python3, app", "[no-such-program, app"))
    failed = plane.grange("apply", "-f", str(changed), "--wait", code=1)
    assert "✔ grc/web" not in " ".join(failed.split()), failed
    assert "no-such-program" in failed
    assert "next: grange why grc/web" in failed
    for words in (("wait", "grc/web"), ("rc", "rollout", "status", "web")):
        assert "no-such-program" in plane.grange(*words, code=1), words
    plane.grange("apply", "-f", str(QUICKSTART), "--wait")
    plane.grange("delete", "-f", str(QUICKSTART))


def test_program_without_a_probe_must_stay_up(plane: Plane) -> None:
    crash = pod("crash", "sh", "-c", "sleep 0.5; exit 3")
    failed = plane.grange("apply", "-f", "-", "--wait", stdin=crash, code=1)
    assert "pod/crash: main: ended with exit code 3" in failed
    assert "✔" not in failed
    plane.grange("delete", "pod", "crash")


def test_scaling_by_applying_a_changed_manifest(plane: Plane, tmp_path: Path) -> None:
    changed = tmp_path / "web.yaml"
    plane.grange("apply", "-f", str(QUICKSTART), "--wait")
    changed.write_text(QUICKSTART.read_text().replace("replicas: 3", "replicas: 1"))
    assert "configured" in plane.grange("apply", "-f", str(changed), "--wait")
    eventually(
        lambda: len(plane.grange("get", "pods", "-o", "name").split()) == 1, "two pods went away"
    )
    plane.grange("delete", "-f", str(changed))


def test_scaling_by_the_verb(plane: Plane) -> None:
    plane.grange("apply", "-f", str(QUICKSTART), "--wait")
    reported = plane.grange(
        "scale", "grc/web", "--replicas", "1", "--current-replicas", "3", "--wait"
    )
    assert reported.startswith("replicationcontroller.grange.dev/web scaled\n")
    assert "1/1 ready" in reported
    eventually(
        lambda: len(plane.grange("get", "pods", "-o", "name").split()) == 1, "two pods went away"
    )
    path = "jsonpath={.spec.replicas}"
    refused = plane.grange("scale", "grc", "web", "--replicas=2", "--current-replicas=3", code=1)
    assert "Expected replicas to be 3, was 1" in refused
    assert plane.grange("get", "grc", "web", "-o", path) == "1"
    plane.grange("scale", "grc", "web", "--replicas", "2", "--wait")
    assert plane.grange("get", "grc", "web", "-o", path) == "2"
    assert "no subresource scale" in plane.grange("scale", "node/a", "--replicas=1", code=1)
    assert '"none" not found' in plane.grange("scale", "grc/none", "--replicas=1", code=1)
    assert "--replicas" in plane.grange("scale", "grc/web", code=64)
    plane.grange("delete", "grc", "web")


def test_events_in_order_and_as_they_come(plane: Plane) -> None:
    assert "No events found." in plane.grange("events", "--for", "pod/none")
    plane.grange("apply", "-f", "-", stdin=pod("first", "true", restartPolicy="Never"))
    plane.grange("wait", "pod/first", "--for", "jsonpath={.status.phase}=Succeeded")
    eventually(
        lambda: {"Scheduled", "Started"} <= set(plane.grange("events").split()),
        "the events are written",
    )
    lines = plane.grange("events", "--for", "pod/first").splitlines()
    assert lines[0].split() == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert all("Pod/first" in line for line in lines[1:])
    assert {line.split()[2] for line in lines[1:]} >= {"Scheduled", "Started"}
    assert plane.grange("events", "-A").splitlines()[0].startswith("NAMESPACE")
    assert "Started" not in plane.grange("events", "--for", "pod/first", "--types", "Warning")
    watcher = subprocess.Popen(
        [
            *(sys.executable, "-m", "grange", "events", "-w", "--for", "pod/second"),
            *("--kubeconfig", str(plane.kubeconfig)),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert watcher.stdout is not None
        assert watcher.stdout.readline().startswith("LAST SEEN")
        plane.grange("apply", "-f", "-", stdin=pod("second", "true", restartPolicy="Never"))
        assert "Pod/second" in watcher.stdout.readline()
    finally:
        watcher.terminate()
        watcher.wait(LIMIT_S)
        if watcher.stdout is not None:
            watcher.stdout.close()
    assert "KIND/NAME" in plane.grange("events", "--for", "pod", code=64)


def test_wait_and_its_exit_codes(plane: Plane) -> None:
    plane.grange("apply", "-f", "-", stdin=pod("done", "true", restartPolicy="Never"))
    plane.grange("wait", "pod/done", "--for", "jsonpath={.status.phase}=Succeeded")
    timed_out = plane.grange("wait", "pod/none", "--timeout", "0.3s", code=1)
    assert "timed out after 0.3s: pod/none" in timed_out
    assert "next: grange describe pod/none" in timed_out
    plane.grange("delete", "pod", "done")
    plane.grange(
        "wait",
        "pod/done",
        "--for",
        "delete",
    )


def test_output_formats(plane: Plane) -> None:
    plane.grange(
        "apply",
        "-f",
        "-",
        stdin="{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: v}}",
    )
    assert json.loads(plane.grange("get", "cm", "a", "-o", "json"))["data"] == {"k": "v"}
    assert "k: v" in plane.grange("get", "cm", "a", "-o", "yaml")
    assert plane.grange("get", "cm", "a", "-o", "jsonpath={.data.k}") == "v"
    columns = plane.grange("get", "cm", "-o", "custom-columns=NAME:.metadata.name,K:.data.k")
    assert columns.splitlines()[1].split() == ["a", "v"]
    assert plane.grange("get", "cm", "--no-headers").split()[0] == "a"
    everywhere = plane.grange("get", "cm", "-A", "--show-labels")
    assert everywhere.splitlines()[0].split()[0] == "NAMESPACE"
    nodes = plane.grange("get", "nodes", "-L", "kubernetes.io/os,kubernetes.io/arch", "-L", "none")
    assert nodes.splitlines()[0].split()[-3:] == ["OS", "ARCH", "NONE"]
    assert nodes.splitlines()[1].split()[-2] == "linux"


def test_get_watch_prints_changes_as_they_come(plane: Plane) -> None:
    watcher = subprocess.Popen(
        [sys.executable, "-m", "grange", "get", "cm", "-w", "--kubeconfig", str(plane.kubeconfig)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert watcher.stdout is not None
        manifest = "{apiVersion: v1, kind: ConfigMap, metadata: {name: seen}}"
        plane.grange("apply", "-f", "-", stdin=manifest)
        lines = [watcher.stdout.readline() for _ in range(3)]
        assert lines.pop(1).startswith("kube-root-ca.crt")  # every namespace has it
        assert lines[0].startswith("NAME")
        assert lines[1].startswith("seen")
    finally:
        watcher.terminate()
        watcher.wait(LIMIT_S)
        if watcher.stdout is not None:
            watcher.stdout.close()


def test_what_the_server_refuses_is_one_line(plane: Plane) -> None:
    assert plane.grange("logs", "none", code=1).splitlines() == [
        'Error from server (NotFound): pods "none" not found'
    ]
    pending = pod("pending", "true", nodeSelector={"no": "where"})
    plane.grange("apply", "-f", "-", stdin=pending)
    running = pod("running", "sh", "-c", "echo here; sleep 60")
    plane.grange("apply", "-f", "-", "--wait", stdin=running)
    both = plane.grange("logs", "-l", "!app", code=1)
    assert "[running] here" in both
    assert "pod pending does not have a host assigned" in both
    assert "Traceback" not in both


def test_a_service_whose_program_is_missing_names_it(plane: Plane) -> None:
    broken = QUICKSTART.read_text().replace("[python3, app/web.py]", "[pyhton3, app/web.py]")
    reported = plane.grange(
        "apply", "-f", "-", "--wait", f"--timeout={LIMIT_S:.0f}s", code=1, stdin=broken
    )
    assert "pod/web-" in reported
    assert 'program "pyhton3" not found' in reported
    assert "timed out" not in reported
    assert "next: grange why grc/web" in reported


def test_a_wait_that_times_out_shows_what_a_pod_waits_for(plane: Plane) -> None:
    slow = QUICKSTART.read_text().replace('"WARM_UP_S", "0.2"', '"WARM_UP_S", "99"')
    plane.grange("apply", "-f", "-", stdin=slow)
    eventually(lambda: "probe failed" in plane.grange("describe", "pods"), "a probe fails")
    reported = plane.grange("apply", "-f", "-", "--wait", "--timeout", "3s", code=1, stdin=slow)
    assert "timed out after 3s: grc/web: 0/3 ready" in reported
    assert "probe failed" in reported
    assert "next: grange describe pod/web-" in reported


def test_none_there_is_reported_with_the_remedy(tmp_path: Path) -> None:
    plane = Plane(tmp_path / "data")
    plane.start()
    plane.stop()
    reported = plane.grange("get", "pods", code=1)
    assert reported.startswith("Error: https://127.0.0.1:")
    assert "Connection refused" in reported
    assert "`grange up`" in reported


def test_usage_errors_have_an_exit_code_of_their_own(plane: Plane) -> None:
    assert "-f FILE" in plane.grange("apply", code=64)
    assert "no name; write KIND NAME" in plane.grange("delete", "pods", code=64)
    assert "kubectl edit" in plane.grange("edit", "pod/x", code=64)
    assert "--for=soon" in plane.grange("wait", "pod/x", "--for", "soon", code=64)


@pytest.mark.timeout(1300)  # longer than the run itself may take, so that it can clean up
def test_make_run_does_what_the_readme_promises() -> None:
    """Its verbs are forked from the warm process."""
    program = (sys.executable, "-I", "-S", str(WARM_CLIENT), str(Plane.cli.path))
    code = f"import sys, run; run.GRANGE = {program!r}; sys.exit(run.main())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        cwd=ROOT / "examples",
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("→ Hello from web-") == 6
    assert "web-0 is replaced by web-" in done.stdout
    assert "0 failed, at least 3 replicas ready" in done.stdout
    assert done.stdout.count(" works on vm-") == 6
    assert "over quota of queue training: pods 6 of 3, borrowing none" in done.stdout
    assert "-l 'scheduling.x-k8s.io/pod-group in (blue,green)'" in done.stdout
    assert "fgd        allocates" in done.stdout
    assert "Summary" in done.stdout


def test_can_i_answers_with_words_and_exit_codes(plane: Plane) -> None:
    for manifest in (
        "{kind: Role, metadata: {name: reader}, rules: [{apiGroups: [''], resources: [pods, pods/log], verbs: [get, list]}]}",
        "{kind: RoleBinding, metadata: {name: ci}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}, "
        "subjects: [{kind: User, name: ci, apiGroup: rbac.authorization.k8s.io}]}",
    ):
        text = manifest.replace("{kind", "{apiVersion: rbac.authorization.k8s.io/v1, kind", 1)
        plane.grange("apply", "-f", "-", stdin=text)
    asked = ("auth", "can-i")
    assert plane.grange(*asked, "delete", "nodes") == "yes\n"
    assert plane.grange(*asked, "*", "*") == "yes\n"
    assert plane.grange(*asked, "list", "pods", "--as", "ci") == "yes\n"
    assert plane.grange(*asked, "get", "pod/web", "--subresource", "log", "--as", "ci") == "yes\n"
    assert plane.grange(*asked, "list", "pods", "-A", "--as", "ci", code=1).startswith("no")
    assert plane.grange(*asked, "get", "nodes", "a", "--as", "ci", "-q", code=1) == ""
    assert plane.grange(*asked, "get", "/metrics", "--as", "ci", code=1).startswith("no")
    assert "no resource type" in plane.grange(*asked, "get", "things", "--as", "ci", code=1)
    status = json.loads(plane.grange(*asked, "delete", "pods", "--as", "ci", "-o", "json", code=1))
    assert status["allowed"] is False
    listed = plane.grange(*asked, "--list", "--as", "ci").splitlines()
    assert listed[0].split() == ["RESOURCES", "PATHS", "NAMES", "VERBS"]
    assert ["pods/log", "get,list"] in [line.split() for line in listed]
    assert "grange:admin" in plane.grange("auth", "whoami")
    assert (
        json.loads(plane.grange("auth", "whoami", "--as", "ci", "-o", "json"))["username"] == "ci"
    )
