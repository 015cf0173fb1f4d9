"""``grange lease drain-pool`` as a whole verb."""

from pathlib import Path

from tests.unit.cli.canned_cluster import CannedCluster, listed

from grange.api.kinds import LEASEPOLICY, NODE
from grange.api.kinds.leasepolicy import POLICY_NAME
from grange.api.meta import Document
from grange.base.log import Logger
from grange.base.rng import Stream

FORBIDDEN = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "not yours"}


def test_draining_a_pool_without_nodes_warns(tmp_path: Path, rng: Stream, log: Logger) -> None:
    """A misspelt pool was drained without a word."""
    path = LEASEPOLICY.path("", POLICY_NAME)
    policy: Document = {"metadata": {"name": POLICY_NAME, "resourceVersion": "1"}, "spec": {}}
    node: Document = {"metadata": {"name": "n", "labels": {"pool": "workers"}}}
    answers = {path: policy, f"PATCH {path}": policy, NODE.path(""): listed(node)}
    words = ("lease", "drain-pool", "workers", "wrokers")
    result = CannedCluster(answers).run(tmp_path, rng, log, *words)
    assert result.exit_code == 0, result.output
    assert result.stdout == "no more machines of workers, wrokers are granted\n"
    assert result.stderr == "Warning: no node has the label pool=wrokers now\n"

    result = CannedCluster({**answers, NODE.path(""): FORBIDDEN}).run(tmp_path, rng, log, *words)
    assert (result.exit_code, result.stderr) == (0, "")
