"""``grange job run`` and ``job logs``: what is refused before anything is done."""

from pathlib import Path

from tests.unit.cli.canned_cluster import CannedCluster

from grange.api.kinds import GANGJOB
from grange.api.meta import Document
from grange.base.log import Logger
from grange.base.rng import Stream

CONFIG = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n"
JOB = """---
apiVersion: batch/v1
kind: Job
metadata: {generateName: train-}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: m, command: ["true"]}]}}}
"""
TRAIN: Document = {
    "kind": "GangJob",
    "metadata": {"name": "train", "namespace": "default", "uid": "u"},
    "spec": {"replicaSpecs": {"ps": {"replicas": 1}, "worker": {"replicas": 4}}},
}


def test_run_without_a_job_creates_nothing(tmp_path: Path, rng: Stream, log: Logger) -> None:
    manifest = tmp_path / "m.yaml"
    manifest.write_text(CONFIG)
    cluster = CannedCluster({})
    result = cluster.run(tmp_path, rng, log, "job", "run", "-f", str(manifest))
    assert result.exit_code != 0
    assert "the manifests hold no job; nothing was created" in result.output
    assert cluster.writes == []


def test_follow_of_two_jobs_creates_nothing(tmp_path: Path, rng: Stream, log: Logger) -> None:
    manifest = tmp_path / "m.yaml"
    manifest.write_text(CONFIG + JOB + JOB)
    cluster = CannedCluster({})
    words = ("job", "run", "-f", str(manifest), "--follow")
    result = cluster.run(tmp_path, rng, log, *words)
    assert "--follow takes one job; use --wait for several" in result.output
    assert cluster.writes == []


def test_logs_of_an_unknown_role_name_the_roles(tmp_path: Path, rng: Stream, log: Logger) -> None:
    cluster = CannedCluster({GANGJOB.path("default", "train"): TRAIN})
    for more in ((), ("-f",)):
        words = ("job", "logs", "gangjob/train", "--role", "wrker", *more)
        result = cluster.run(tmp_path, rng, log, *words)
        assert result.exit_code != 0
        assert "has no role wrker; its roles are ps, worker" in result.output
