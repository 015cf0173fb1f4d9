"""A cluster in which our controllers are guests: an API server, kubelets, and members under the printed account.

The API server is our own with nothing but its API, or, where ``$GRANGE_TEST_KUBE_BIN`` names a directory
with ``kube-apiserver`` and ``etcd``, those of Kubernetes. What a kube-controller-manager does for nodes,
garbage and namespaces, controllers of ours do here, with an administrator's rights.
"""

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tests.e2e import kubectl
from tests.e2e.planes import GRANGE, LIMIT_S, Plane, eventually

KUBE_BIN = "GRANGE_TEST_KUBE_BIN"
NODES = ("d0=drivers", "w0=workers", "w1=workers", "w2=workers")
CONTROLLERS = "gangjob,testsession,machinelease,scheduler"
_ADMIN = "administrator"


@dataclass
class ForeignCluster:
    """Handles to it.

    Attributes:
        directory: of its files.
        kubeconfig: of an administrator.
        is_kubernetes: its API server is Kubernetes' own.
    """

    directory: Path
    kubeconfig: Path
    is_kubernetes: bool = False
    _members: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def kubectl(self, *words: str, stdin: str = "", code: int = 0) -> str:
        """Run kubectl as an administrator; both outputs."""
        command = [str(kubectl.find()), f"--kubeconfig={self.kubeconfig}", *words]
        done = subprocess.run(
            command,
            input=stdin,
            check=False,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env={"HOME": str(self.directory), "PATH": os.environ["PATH"]},
        )
        assert done.returncode == code, (words, done)
        return done.stdout + done.stderr

    def apply(self, *documents: dict[str, Any]) -> None:
        """Apply objects. Kubernetes before 1.25 has kubectl check them, by what it knows of them."""
        self.kubectl("apply", "-f", "-", stdin="---\n".join(map(yaml.safe_dump, documents)))

    def get(self, *words: str) -> dict[str, Any]:
        """Objects as documents, by a verb of ours."""
        done = Plane.cli.run("get", *words, "-o", "json", "--kubeconfig", str(self.kubeconfig))
        assert done.returncode == 0, (words, done)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def there(self, *words: str) -> list[str]:
        """Names of objects."""
        return sorted(item["metadata"]["name"] for item in self.get(*words)["items"])

    def status(self, kind: str, name: str) -> dict[str, Any]:
        """The status of an object; empty where it has none, or is not there."""
        found = self.get(kind)["items"]
        mine = (item.get("status") or {} for item in found if item["metadata"]["name"] == name)
        return next(mine, {})

    def reaches(self, kind: str, name: str, phase: str) -> None:
        """Wait for a phase, or a condition of a job."""

        def reached() -> bool:
            status = self.status(kind, name)
            holds = {
                one["type"] for one in status.get("conditions") or () if one["status"] == "True"
            }
            return phase == status.get("phase") or phase in holds

        try:
            eventually(reached, f"{kind}/{name} is {phase}")
        except AssertionError as error:
            error.add_note(json.dumps(self.status(kind, name)))
            error.add_note(json.dumps(self.get("pods")))
            raise

    def join(self, name: str, only: str = CONTROLLERS) -> None:
        """Start a member of the farm under the account that ``grange install`` prints."""
        path = self.directory / "controllers.kubeconfig"
        if not path.exists():
            words = ("create", "token", "grange-controllers", "-n", "grange-system")
            document = yaml.safe_load(self.kubeconfig.read_text())
            [user] = document["users"]
            user["user"] = {"token": self.kubectl(*words).strip()}
            path.write_text(yaml.safe_dump(document))
        self._members[name] = self._controllers(path, name, only)

    def kill(self, name: str) -> None:
        """SIGKILL a member: nothing is cleaned up."""
        process = self._members.pop(name)
        process.kill()
        process.wait(LIMIT_S)

    def refusals(self) -> list[str]:
        """What members have logged of requests that may not be made, or break a definition."""
        return [
            line
            for path in self.directory.glob("member-*.log")
            for line in path.read_text().splitlines()
            if any(word in line for word in ("Forbidden: ", "Invalid: ", "BadRequest: "))
        ]

    def stop(self) -> None:
        """End members."""
        for name in list(self._members):
            self.kill(name)

    def _controllers(self, kubeconfig: Path, name: str, only: str) -> "subprocess.Popen[bytes]":
        words = [f"--kubeconfig={kubeconfig}", f"--only={only}", f"--member={name}"]
        words += ["--scheduler-name=grange", "--scheduler-name=default-scheduler"]
        return self._start(f"member-{name}", *GRANGE, "controllers", *words, "--log-json")

    def _start(self, name: str, *words: str) -> "subprocess.Popen[bytes]":
        with (self.directory / f"{name}.log").open("ab") as output:
            return subprocess.Popen(words, stdout=output, stderr=output)

    @contextmanager
    def inhabited(self) -> Iterator[None]:
        """Kubelets run, and what Kubernetes does itself is done."""
        kubelets = ("-m", "tests.support.foreign_kubelets", str(self.kubeconfig), *NODES)
        with ExitStack() as stack:
            kubelets_process = self._start("kubelets", sys.executable, *kubelets)
            stack.callback(_end, kubelets_process)
            others = "nodelifecycle,garbagecollector,namespace"
            manager = self._controllers(self.kubeconfig, "kube-controller-manager", others)
            stack.callback(_end, manager)
            stack.callback(self.stop)
            eventually(
                lambda: len(self._ready()) == len(NODES), "nodes are ready and have no taints"
            )
            yield

    def _ready(self) -> list[str]:
        return [
            node["metadata"]["name"]
            for node in self.get("nodes")["items"]
            if not (node.get("spec") or {}).get("taints")
            for one in node["status"].get("conditions") or ()
            if (one["type"], one["status"]) == ("Ready", "True")
        ]


@contextmanager
def foreign_cluster(directory: Path) -> Iterator[ForeignCluster]:
    """Start one and install what ``grange install`` prints, but for the Deployment."""
    programs = os.environ.get(KUBE_BIN, "")
    serving = _kubernetes(directory, Path(programs)) if programs else _ours(directory)
    with serving as cluster:
        parts = ("crds", "rbac") if cluster.is_kubernetes else ("rbac",)
        for part in parts:
            printed = Plane.cli.run("install", "--only", part).stdout
            # kubectl itself checks what it sends to old servers, by their schemas.
            cluster.kubectl("apply", "--validate=false", "-f", "-", stdin=printed)
        if cluster.is_kubernetes:
            crds = ("crd", "--all", "--for=condition=Established", f"--timeout={LIMIT_S:.0f}s")
            cluster.kubectl("wait", *crds)
        with cluster.inhabited():
            yield cluster


@contextmanager
def _ours(directory: Path) -> Iterator[ForeignCluster]:
    plane = Plane(directory / "data", words=("--disable", "scheduler,controllers,machines,agent"))
    try:
        plane.start()
        yield ForeignCluster(directory, plane.kubeconfig)
    finally:
        plane.stop()


@contextmanager
def _kubernetes(directory: Path, programs: Path) -> Iterator[ForeignCluster]:
    key, tokens, port = directory / "accounts.key", directory / "tokens.csv", _free_port()
    subprocess.run(
        [_openssl(), "genrsa", "-out", str(key), "2048"], check=True, capture_output=True
    )
    tokens.write_text(f"{_ADMIN},admin,admin,system:masters\n")
    cluster = ForeignCluster(directory, directory / "admin.kubeconfig", is_kubernetes=True)
    server = f"https://127.0.0.1:{port}"
    cluster.kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {"token": _ADMIN}}],
                "clusters": [
                    {"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": True}}
                ],
            }
        )
    )
    peers, clients = (f"http://127.0.0.1:{_free_port()}" for _ in range(2))
    with ExitStack() as stack:
        etcd = cluster._start(
            *("etcd", str(programs / "etcd"), f"--data-dir={directory / 'etcd'}"),
            *(f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}"),
            f"--listen-peer-urls={peers}",
        )
        stack.callback(_end, etcd)
        api = cluster._start(
            *("kube-apiserver", str(programs / "kube-apiserver"), f"--etcd-servers={clients}"),
            *("--bind-address=127.0.0.1", f"--secure-port={port}", "--authorization-mode=RBAC"),
            *(f"--cert-dir={directory / 'certs'}", f"--token-auth-file={tokens}"),
            *(f"--service-account-signing-key-file={key}", f"--service-account-key-file={key}"),
            *("--service-account-issuer=https://kubernetes.default.svc", "--v=0"),
            "--service-cluster-ip-range=10.96.0.0/24",
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
            "--disable-admission-plugins=ServiceAccount",  # no one makes accounts of namespaces here
        )
        stack.callback(_end, api)
        eventually(lambda: _answers(f"{server}/readyz"), "kube-apiserver is ready")
        yield cluster


def _answers(url: str) -> bool:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {_ADMIN}"})  # noqa: S310  made here
    context = ssl._create_unverified_context()  # noqa: S323  loopback, a server of this test
    try:
        with urllib.request.urlopen(request, context=context, timeout=LIMIT_S) as answer:  # noqa: S310  made here
            return bool(answer.status == 200)
    except OSError:
        return False


def _free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _openssl() -> str:
    found = shutil.which("openssl")
    assert found is not None, "no openssl to make a key of service accounts with"
    return found


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(LIMIT_S)


def pod(*command: str, **more: Any) -> dict[str, Any]:
    """A template with one container; what it does is its first word."""
    return {
        "spec": {"containers": [{"name": "main", "image": "x", "command": list(command), **more}]}
    }


def session(name: str, does: str, **spec: Any) -> dict[str, Any]:
    """A TestSession with a driver and a server, on two machines; what its driver does."""
    return {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "TestSession",
        "metadata": {"name": name},
        "spec": {
            "driver": {"pool": "drivers", "template": pod(does)},
            "servers": [{"name": "server", "pool": "workers", "template": pod("serve")}],
            **spec,
        },
    }


def gang_job(name: str, words: Sequence[str]) -> dict[str, Any]:
    """A GangJob of two roles; what their pods do."""
    roles = {
        role: {"replicas": count, "restartPolicy": "Never", "template": pod(word)}
        for role, count, word in zip(("main", "worker"), (1, 2), words, strict=True)
    }
    return {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "GangJob",
        "metadata": {"name": name},
        "spec": {"replicaSpecs": roles, "runPolicy": {"backoffLimit": 0}},
    }
