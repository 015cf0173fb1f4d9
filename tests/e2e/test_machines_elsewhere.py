"""Reports of ``grange machines`` where the node controller is a guest of the cluster, and machines are hosts behind SSH.

The API server has no node controller: the command requests the reports by annotations, which it answers.
"""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.planes import Plane, eventually
from tests.support.foreign_cluster import ForeignCluster, foreign_cluster
from tests.support.ssh_hosts import SECRET, SshHosts, ssh_hosts

from grange.base.clock import LoopClock

pytestmark = pytest.mark.e2e

POOL = "rack"
HOSTS = ("h-1", "h-2")


def secret(hosts: SshHosts) -> dict[str, Any]:
    key = base64.b64encode(hosts.key.export_private_key()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": "kube-system"},
        "data": {"ssh-privatekey": key},
    }


def node_pool(config: dict[str, object]) -> dict[str, Any]:
    """One host is to be kept; it runs a script that has it join nothing."""
    return {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": POOL},
        "spec": {
            "provider": "ssh",
            "mode": "Dedicated",
            "providerConfig": config,
            "bootstrap": "UserData",
            "userData": "#!/bin/sh\ntrue\n",
            "standby": [{"instanceType": "rack", "count": 1}],
        },
    }


def report(cluster: ForeignCluster, what: str, code: int = 0) -> dict[str, Any]:
    words = ("--pool", POOL, "-o", "json", "--kubeconfig", str(cluster.kubeconfig))
    done = Plane.cli.run("machines", what, *words)
    assert done.returncode == code, done
    (found,) = json.loads(done.stdout)["pools"]
    return dict(found)


def launched(cluster: ForeignCluster) -> bool:
    found = cluster.get("machines")["items"]  # a record that was just made has no status yet
    return [one.get("status", {}).get("phase") for one in found] == ["Created"]


def reports_agree_until_a_host_is_claimed(directory: Path, hosts: SshHosts) -> None:
    with foreign_cluster(directory) as cluster:
        # Hosts stay claimed: the node controller ends what has no record, and none is to be gone so soon.
        cluster.apply(secret(hosts), node_pool(hosts.config(release="exit 1")))
        cluster.join("one", "machines")
        eventually(lambda: launched(cluster), "a host is claimed")
        plan = report(cluster, "plan")
        assert (plan["refusal"], plan["decisions"]) == ("", [])
        audit = report(cluster, "audit")
        assert (audit["machines"], audit["instances"], audit["differences"]) == (1, 1, [])
        # A claim that no record has, as after a record was removed by hand.
        claims = {name: hosts.directory(name) / "claim" for name in HOSTS}
        (used,) = [claim for claim in claims.values() if claim.is_symlink()]
        ((name, free),) = [one for one in claims.items() if one[1] != used]
        free.parent.mkdir(parents=True)
        free.symlink_to(used.readlink().parent / "stranger")
        audit = report(cluster, "audit", code=1)
        found = [(one["machine"], one["instance"], one["problem"]) for one in audit["differences"]]
        assert found == [("stranger", f"{name}/stranger", "NoRecord")]
        assert "reports.grange.dev" not in json.dumps(cluster.get("nodepools"))
        assert cluster.refusals() == []


async def test_controllers_elsewhere_answer_plan_and_audit(tmp_path: Path) -> None:
    (tmp_path / "hosts").mkdir()
    async with ssh_hosts(tmp_path / "hosts", LoopClock(), *HOSTS) as hosts:
        await asyncio.to_thread(reports_agree_until_a_host_is_claimed, tmp_path, hosts)
