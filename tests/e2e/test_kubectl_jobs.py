"""Jobs and CronJobs of batch/v1 as users of kubectl know them."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kubectl import Kubectl
from tests.e2e.planes import Plane

pytestmark = pytest.mark.e2e

FOREVER = "--timeout=120s"


def job(name: str, script: str, **spec: Any) -> str:
    container = {"name": "main", "command": ["sh", "-c", script]}
    pod = {"restartPolicy": "Never", "containers": [container], **spec.pop("pod", {})}
    return json.dumps(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"template": {"spec": pod}, **spec},
        }
    )


async def test_job_is_described_waited_for_and_read(plane: Plane, tmp_path: Path) -> None:
    kubectl = Kubectl(tmp_path, plane.kubeconfig)
    indexed = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}
    script = "echo index $JOB_COMPLETION_INDEX"
    await kubectl.ok("create", "-f", "-", stdin=job("good", script, **indexed))
    waits = {"nodeSelector": {"disk": "none"}}
    await kubectl.ok("create", "-f", "-", stdin=job("waits", script, **indexed, pod=waits))
    await kubectl.ok("create", "-f", "-", stdin=job("bad", "exit 3", backoffLimit=1))

    await kubectl.ok("wait", "job/good", "--for=condition=Complete", FOREVER)
    described = (await kubectl.ok("describe", "job", "good")).out
    assert "0 Active (0 Ready) / 3 Succeeded / 0 Failed" in described
    assert "Completed Indexes:  0-2" in described
    logs = await kubectl.ok("logs", "-l", "job-name=good", "--prefix=false")
    assert sorted(logs.lines) == ["index 0", "index 1", "index 2"]

    await kubectl.ok("wait", "job/bad", "--for=condition=Failed", FOREVER)
    described = (await kubectl.ok("describe", "job", "bad")).out
    assert "0 Active (0 Ready) / 0 Succeeded / 2 Failed" in described
    assert "BackoffLimitExceeded" in described

    await kubectl.ok("wait", "job/waits", "--for=jsonpath={.status.active}=3", FOREVER)
    described = (await kubectl.ok("describe", "job", "waits")).out
    assert "3 Active (0 Ready) / 0 Succeeded / 0 Failed" in described
    patch = '{"spec": {"suspend": true}}'
    await kubectl.ok("patch", "job", "waits", "--type=merge", "-p", patch)
    await kubectl.ok("wait", "job/waits", "--for=condition=Suspended", FOREVER)
    await kubectl.ok("delete", "pod", "-l", "job-name=waits", "--wait")  # none, or on their way
    listed = await kubectl.ok("get", "jobs")
    assert {tuple(line.split()[:3]) for line in listed.lines[1:]} == {
        ("good", "Complete", "3/3"),
        ("bad", "Failed", "0/1"),
        ("waits", "Suspended", "0/3"),
    }


async def test_cronjob_makes_jobs_also_on_request(plane: Plane, tmp_path: Path) -> None:
    kubectl = Kubectl(tmp_path, plane.kubeconfig)
    words = ("--image=example.org/echo:1", "--schedule=@every 2s", "--", "echo", "done")
    await kubectl.ok("create", "cronjob", "often", *words)
    await kubectl.ok(
        "wait", "cronjob/often", "--for=jsonpath={.status.lastSuccessfulTime}", FOREVER
    )
    await kubectl.ok("patch", "cronjob", "often", "-p", '{"spec": {"suspend": true}}')
    await kubectl.ok("create", "job", "by-hand", "--from=cronjob/often")
    await kubectl.ok("wait", "job/by-hand", "--for=condition=Complete", FOREVER)
    assert (await kubectl.ok("logs", "job/by-hand")).out == "done\n"
    described = (await kubectl.ok("describe", "cronjob", "often")).out
    assert "Schedule:                      @every 2s" in described
    assert "SawCompletedJob" in described
    await kubectl.ok("delete", "cronjob", "often")
    await kubectl.ok("wait", "--for=delete", "job/by-hand", FOREVER)
    assert (await kubectl.ok("get", "jobs", "-o", "name")).out == ""
