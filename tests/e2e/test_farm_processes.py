"""The farm with real processes: taking over after SIGKILL, and sharing between processes."""

import asyncio
import http.server
import json
import re
import subprocess
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import pytest
from tests.e2e.planes import GRANGE, LIMIT_S, Plane, eventually

from grange.alerts.webhook import Post, post_to
from grange.api.kinds import LEASE
from grange.apiserver import storage
from grange.app import certificates
from grange.base.log import Logger
from grange.store.sqlite import SQLiteStore

pytestmark = pytest.mark.e2e

LONG_S = 3600
UNREACHABLE = json.dumps(
    {
        "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "a", "user": {"token": "none"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    made = Plane(tmp_path / "data")
    try:
        yield made
    finally:
        made.stop()


def controller(name: str, replicas: int = 0) -> str:
    template = {"spec": {"containers": [{"name": "main", "command": ["sleep", "1000"]}]}}
    return json.dumps(
        {
            "apiVersion": "grange.dev/v1alpha1",
            "kind": "ReplicationController",
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "placement": "Packed", "template": template},
        }
    )


def owners(plane: Plane) -> Counter[str]:
    """How many controllers each session has."""
    items = plane.get("grc")["items"]
    reported = [
        item["metadata"].get("annotations", {}).get("grange.dev/owner", "") for item in items
    ]
    return Counter(reported)


async def prolong_leases(plane: Plane) -> int:
    """Give what a killed control plane held a term of an hour; how many Leases it held."""
    store = await SQLiteStore.open(plane.directory / "store", log=Logger("test"))
    try:
        page = await store.list(storage.prefix(LEASE, "kube-system"))
        held = 0
        for entry in page.entries:
            document = json.loads(entry.value)
            if document.get("spec", {}).get("holderIdentity"):
                held += 1
                document["spec"]["leaseDurationSeconds"] = LONG_S
                await store.put(entry.key, storage.encode(LEASE, document, storage.Work()))
    finally:
        await store.close()
    return held


def test_a_new_control_plane_takes_over_at_once_after_sigkill(plane: Plane) -> None:
    """The lock on the data directory proves that the other is dead: its Lease is not waited for."""
    plane.start()
    plane.grange("apply", "-f", "-", "--wait", stdin=controller("web", 1))
    plane.kill()
    assert asyncio.run(prolong_leases(plane)) > 0
    plane.start()
    plane.grange("scale", "grc/web", "--replicas", "2", "--wait")


def test_processes_share_the_work_and_take_over_from_each_other(
    plane: Plane, tmp_path: Path
) -> None:
    plane.words = ("--disable", "controllers")
    plane.start()
    manifests = "\n---\n".join(controller(f"web-{number}") for number in range(12))
    plane.grange("apply", "-f", "-", stdin=manifests)
    managers = {}
    try:
        for name in ("one", "two"):
            with (tmp_path / f"{name}.log").open("w") as output:
                words = ["controllers", "--kubeconfig", str(plane.kubeconfig), "--member", name]
                managers[name] = subprocess.Popen([*GRANGE, *words], stdout=output, stderr=output)

        def shared() -> bool:
            loads = owners(plane)
            return sorted(loads.values()) == [6, 6] and "" not in loads

        eventually(shared, "twelve controllers are shared by two processes")
        eventually(lambda: "6" in plane.grange("farm", "status"), "the status shows it")
        printed = re.search(
            r"metrics at (http://127\.0\.0\.1:\d+)", (tmp_path / "one.log").read_text()
        )
        assert printed is not None
        for path, expected in (("metrics", "grange_farm_owned"), ("livez", "ok"), ("readyz", "ok")):
            with urllib.request.urlopen(f"{printed[1]}/{path}", timeout=LIMIT_S) as answer:  # noqa: S310  printed by the process
                assert expected in answer.read().decode()
        managers["one"].kill()
        # How soon: tests/unit/farm counts that in virtual seconds.
        eventually(
            lambda: {owner.split("_")[0] for owner in owners(plane)} == {"two"},
            "the other has all of them",
        )
        plane.grange("apply", "-f", "-", "--wait", stdin=controller("web-3", 1))
        managers["two"].terminate()
        assert managers["two"].wait(LIMIT_S) == 0, (tmp_path / "two.log").read_text()
    finally:
        for group in managers.values():
            group.kill()
            group.wait(LIMIT_S)


class _Receiver(http.server.BaseHTTPRequestHandler):
    taken: ClassVar[list[tuple[str, bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.taken.append((self.path, body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *words: object) -> None:
        """Log nothing."""


def test_alerts_are_posted_and_a_secret_stays_out_of_errors() -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), _Receiver)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/hook/secret"
    assert asyncio.run(post(post_to(url))) == 204
    thread.join(LIMIT_S)
    server.server_close()
    assert _Receiver.taken == [("/hook/secret", b"{}")]
    with pytest.raises(ConnectionError) as caught:
        asyncio.run(post(post_to(url)))
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


class _Redirect(_Receiver):
    taken: ClassVar[list[tuple[str, bytes]]] = []

    def send_response(self, code: int, message: str | None = None) -> None:
        super().send_response(307, message)
        self.send_header("Location", "/inside")


class _Encrypted(_Receiver):
    taken: ClassVar[list[tuple[str, bytes]]] = []


def test_webhook_trusts_the_authorities_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = certificates.ensure(tmp_path, names=["localhost"], now=datetime.now(UTC))
    server = http.server.HTTPServer(("127.0.0.1", 0), _Encrypted)
    server.socket = keys.server_context().wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))
    assert asyncio.run(post(post_to(f"https://localhost:{server.server_port}/tls"))) == 204
    thread.join(LIMIT_S)
    server.server_close()
    assert _Encrypted.taken == [("/tls", b"{}")]


def test_redirects_of_an_alert_are_not_followed() -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), _Redirect)
    server.timeout = 0.5

    def serve() -> None:
        for _ in range(2):
            server.handle_request()

    thread = threading.Thread(target=serve)
    thread.start()
    assert asyncio.run(post(post_to(f"http://127.0.0.1:{server.server_port}/hook"))) == 307
    thread.join(LIMIT_S)
    server.server_close()
    assert [path for path, _ in _Redirect.taken] == ["/hook"]


async def post(to: Post) -> int:
    return await to(b"{}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--only", "replicas"), "--only: no controller 'replicas'; there are replication,"),
        (("--selector", "a in"), '--selector: label selector "a in"'),
        (("--member", "A b"), "member 'A b': must be"),
        (("--alert-webhook", "me"), "--alert-webhook: write a URL"),
    ],
)
def test_nonsense_for_controllers_is_refused_by_name(
    plane: Plane, words: tuple[str, ...], message: str
) -> None:
    """Before anything is connected to: nothing serves there."""
    plane.kubeconfig.parent.mkdir(parents=True)
    plane.kubeconfig.write_text(UNREACHABLE)
    assert message in plane.grange("controllers", *words, code=64)
