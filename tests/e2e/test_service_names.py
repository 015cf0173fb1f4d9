"""Names of Services in pods that run, and the page and example that show them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.planes import Plane, eventually, pod

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    words = ("--isolation", "auto", "--network", "addresses")
    made = Plane(tmp_path_factory.mktemp("names") / "data", words=words)
    made.start()
    eventually(lambda: bool(made.get("nodes")["items"]), "the node registers")
    [node] = made.get("nodes")["items"]
    if node["metadata"]["labels"]["grange.dev/isolation"] == "none":
        made.stop()
        pytest.xfail("the kernel allows no namespaces here; pods have no files to themselves")
    made.grange("apply", "-f", "-", stdin=pod("client", "sleep", "600"), code=0)
    made.grange("wait", "pod/client")
    yield made
    made.stop()


def apply(plane: Plane, *documents: object) -> None:
    items = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
    plane.grange("apply", "-f", "-", stdin=json.dumps(items))


def inside(plane: Plane, name: str, *command: str) -> str:
    """The output of a command in a pod."""
    where = ("exec", name, "--kubeconfig", str(plane.kubeconfig), "--", *command)
    done = plane.cli.run(*where)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return str(done.stdout)


def addresses(plane: Plane, name: str) -> set[str]:
    """What a program of the pod that runs all the time finds under a name."""
    script = f"getent -s hosts:files ahostsv4 {name} || true"
    lines = inside(plane, "client", "sh", "-c", script).splitlines()
    return {line.split()[0] for line in lines if line}


def service(name: str, **spec: object) -> dict[str, object]:
    ports = [{"name": "http", "port": 8000, "targetPort": 8080}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": ports, **spec},
    }


def member(name: str, group: str) -> object:
    made = json.loads(pod(name, "sleep", "600", hostname=name, subdomain=group))
    made["metadata"]["labels"] = {"app": group}
    return made


def test_service_is_found_by_pods_older_than_it(plane: Plane) -> None:
    apply(plane, service("web"))
    wanted = {plane.get("service", "web")["spec"]["clusterIP"]}
    full = "web.default.svc.cluster.local"
    eventually(lambda: addresses(plane, full) == wanted, "the name is there")
    for name in ("web", "web.default", "web.default.svc"):
        assert addresses(plane, name) == wanted, name
    assert addresses(plane, "web.other") == set()
    plane.grange("delete", "service", "web")
    eventually(lambda: not addresses(plane, full), "the name is gone with its Service")


def test_headless_service_names_each_of_its_pods(plane: Plane) -> None:
    apply(plane, service("peers", clusterIP="None"), member("a", "peers"), member("b", "peers"))
    plane.grange("wait", "pod/a", "pod/b")
    own = {name: plane.get("pod", name)["status"]["podIP"] for name in ("a", "b")}
    eventually(lambda: addresses(plane, "peers") == set(own.values()), "both are found")
    for name, address in own.items():
        assert addresses(plane, f"{name}.peers") == {address}
        assert addresses(plane, f"{name}.peers.default.svc.cluster.local") == {address}
    seen = inside(plane, "a", "hostname", "--fqdn").strip()
    assert seen == "a.peers.default.svc.cluster.local"
    plane.grange("delete", "pod", "b")
    eventually(lambda: addresses(plane, "peers") == {own["a"]}, "a pod that is gone is left out")
    assert addresses(plane, "b.peers") == set()


def test_named_dns_server_takes_the_place_of_the_files(plane: Plane, tmp_path: Path) -> None:
    """The fixture has found that pods have files to themselves here."""
    words = ("--isolation", "auto", "--cluster-dns", "127.0.0.77")
    other = Plane(tmp_path / "data", words=words)
    try:
        other.start()
        apply(other, service("web"))
        other.grange("apply", "-f", "-", stdin=pod("client", "sleep", "600"))
        other.grange("wait", "pod/client")
        lines = inside(other, "client", "cat", "/etc/resolv.conf").splitlines()
        assert "nameserver 127.0.0.77" in lines
        assert lines[0].startswith(
            "search default.svc.cluster.local svc.cluster.local cluster.local"
        )
        assert "web" not in inside(other, "client", "cat", "/etc/hosts")
    finally:
        other.stop()
