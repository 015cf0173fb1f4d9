"""The API server as programs in pods see it, and kubectl's questions about itself."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.kubectl import find
from tests.e2e.planes import LIMIT_S

from grange.testing import cluster

CLIENT = Path(__file__).resolve().parent / "clients" / "in_cluster.py"
pytestmark = pytest.mark.e2e


def test_program_in_a_pod_uses_its_service_account() -> None:
    main = {"name": "main", "command": [sys.executable, str(CLIENT)]}
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "inside"},
        "spec": {"restartPolicy": "Never", "containers": [main]},
    }
    with cluster() as running:
        running.create(document)
        ended = running.wait(
            "pod",
            "inside",
            until=lambda pod: pod is not None and pod["status"]["phase"] in {"Succeeded", "Failed"},
            timeout_s=LIMIT_S,
        )
        assert ended is not None
        assert ended["status"]["phase"] == "Succeeded", ended["status"]
        service = running.get("services", "kubernetes")
        [subset] = running.get("endpoints", "kubernetes")["subsets"]
        assert service["spec"]["ports"][0]["targetPort"] == subset["ports"][0]["port"]
        assert running.url.endswith(f":{subset['ports'][0]['port']}")
        for words, expected in (
            (("auth", "whoami"), "grange:admin"),
            (("auth", "can-i", "delete", "nodes"), "yes"),
            (("auth", "can-i", "--list"), "selfsubjectreviews"),
            (("create", "serviceaccount", "robot"), "created"),
            (("create", "token", "robot"), "ey"),
        ):
            command = [str(find()), f"--kubeconfig={running.kubeconfig}", *words]
            done = subprocess.run(
                command, check=False, capture_output=True, text=True, timeout=LIMIT_S
            )
            assert expected in done.stdout, done
        settings = running.get("configmaps", "kube-root-ca.crt", "kube-system")
        assert settings["data"]["ca.crt"].startswith("-----BEGIN CERTIFICATE-----")
