"""Clients that we did not write, as their authors have them used. ``docs/reference/clients.md`` lists them."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.planes import LIMIT_S
from tests.e2e.test_cluster import run_client, sleeper

from grange.testing import cluster

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = Path(__file__).resolve().parent / "clients"
pytestmark = pytest.mark.e2e


@pytest.fixture
def running() -> Iterator[Any]:
    with cluster() as made:
        yield made


def test_lightkube_works_against_it(running: Any) -> None:
    pod = json.dumps(sleeper("lightkube"))
    assert run_client("with_lightkube.py", str(running.kubeconfig), pod) == "ok\n"


def test_operator_of_kopf_comes_to_rest(running: Any) -> None:
    """It patches a status onto a kind that has none, which must not make it try forever."""
    words = ("-m", "kopf", "run", "--standalone", "--namespace=default")
    operator = subprocess.Popen(
        [sys.executable, *words, str(CLIENTS / "operator_with_kopf.py")],
        env={**os.environ, "KUBECONFIG": str(running.kubeconfig)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        labels = {"managed": "yes"}
        running.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "settings", "labels": labels},
                "data": {"question": "what"},
            }
        )
        wait_for_answer(running, "hello settings")
        running.patch("configmaps", "settings", {"data": {"question": "why"}})
        wait_for_answer(running, "why?")
        running.delete("configmaps", "settings")
        running.wait_gone("configmaps", "settings", timeout_s=LIMIT_S)
    finally:
        operator.send_signal(signal.SIGTERM)
        output, _ = operator.communicate(timeout=300)
    assert operator.returncode == 0, output
    for line in ("created settings", "updated settings", "deleted settings"):
        assert output.count(line) == 1, output
    assert output.count("finished with inconsistencies") <= 1, output


def wait_for_answer(running: Any, answer: str) -> None:
    """Until the operator has given it and noted that it has."""

    def given(document: Any) -> bool:
        handled = document["metadata"].get("annotations", {})
        noted = handled.get("kopf.zalando.org/last-handled-configuration", "")
        return document["data"].get("answer") == answer and json.dumps(answer) in noted

    running.wait("configmaps", "settings", until=given, timeout_s=LIMIT_S)


@pytest.mark.parametrize(("helm", "more"), [("helm3", ()), ("helm4", ("--server-side=false",))])
def test_helm_installs_upgrades_and_uninstalls(
    running: Any, tmp_path: Path, helm: str, more: tuple[str, ...]
) -> None:
    """Helm 4 applies on the server by default, which is not served yet."""
    program = ROOT / ".cache" / "bin" / helm
    assert program.exists(), "run `python scripts/get_kubectl.py`"
    chart, values = str(CLIENTS / "chart"), ("--set", f"python={sys.executable}")

    def run(*words: str) -> str:
        done = subprocess.run(
            [str(program), "--kubeconfig", str(running.kubeconfig), *words],
            env={"HOME": str(tmp_path)},
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def message() -> str:
        return str(running.get("configmaps", "web")["data"]["message"])

    waiting = ("--wait", "--timeout=240s")
    assert re.match(rf"v{helm[-1]}\.", run("version", "--short"))
    assert "STATUS: deployed" in run("install", "web", chart, *waiting, *values, *more)
    assert running.get("pods", "web-lone")["status"]["phase"] == "Running"
    assert running.get("services", "web")["spec"]["clusterIP"]
    run("upgrade", "web", chart, *waiting, *values, "--set", "message=bye", *more)
    assert message() == "bye"
    run("rollback", "web", "1", *waiting, *more)
    assert message() == "hello"
    assert "deployed" in run("list")
    run("uninstall", "web", *waiting)
    for pod in running.list("pods"):  # of the controller, which is gone already
        running.wait_gone("pods", pod["metadata"]["name"], timeout_s=LIMIT_S)
    left = [*running.list("services"), *running.list("secrets")]
    assert not [item for item in left if item["metadata"]["name"].startswith("web")]
