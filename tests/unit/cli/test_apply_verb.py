"""``grange apply`` as a whole verb: all objects are tried, and each refusal is shown."""

from pathlib import Path

import pytest
from tests.unit.cli.canned_cluster import CannedCluster

from grange.api.kinds import CONFIGMAP, SECRET
from grange.api.meta import Document
from grange.base.log import Logger
from grange.base.rng import Stream

MANIFEST = """
apiVersion: v1
kind: Secret
metadata: {name: bad}
---
apiVersion: v1
kind: Pdo
metadata: {name: p}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: good}
"""


def status(code: int, reason: str, message: str) -> Document:
    return {"kind": "Status", "code": code, "reason": reason, "message": message}


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    path = tmp_path / "m.yaml"
    path.write_text(MANIFEST)
    return str(path)


def cluster(**refusal: Document) -> CannedCluster:
    groups: Document = {"groups": []}
    core: Document = {"groupVersion": "v1", "resources": []}
    return CannedCluster({"/apis": groups, "/api/v1": core, **refusal})


def test_refusals_do_not_stop_the_others(
    manifest: str, tmp_path: Path, rng: Stream, log: Logger
) -> None:
    path = SECRET.path("default")
    there = cluster(**{f"POST {path}": status(422, "Invalid", "data: must be base64")})
    result = there.run(tmp_path, rng, log, "apply", "-f", manifest, "--wait")
    assert result.exit_code == 1
    assert there.writes == [f"POST {path}", f"POST {CONFIGMAP.path('default')}"]
    assert result.stdout == "configmap/good created\n"
    first, second, *_, last = result.stderr.splitlines()
    assert first == "Error from server (Invalid): data: must be base64"
    assert second.startswith('Error from server (NotFound): the server does not serve kind "Pdo"')
    assert last == "2 of 3 objects refused; not waiting for the others"


@pytest.mark.parametrize(
    ("code", "reason"), [(401, "Unauthorized"), (503, "ServiceUnavailable"), (500, "InternalError")]
)
def test_failure_of_the_server_ends_an_apply(
    code: int, reason: str, manifest: str, tmp_path: Path, rng: Stream, log: Logger
) -> None:
    path = SECRET.path("default")
    there = cluster(**{f"POST {path}": status(code, reason, "no")})
    result = there.run(tmp_path, rng, log, "apply", "-f", manifest)
    assert result.exit_code == 1
    assert there.writes == [f"POST {path}"]
    assert result.stderr == f"Error from server ({reason}): no\n"
