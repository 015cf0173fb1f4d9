"""``grange logs`` without a container, and texts of several lines in ``grange describe``."""

from pathlib import Path

from tests.unit.cli import canned_cluster
from tests.unit.cli.canned_cluster import CannedCluster

from grange.api.http import Request, Response
from grange.api.kinds import POD
from grange.api.meta import Document
from grange.base.log import Logger
from grange.base.rng import Stream

EVENTS = "/api/v1/namespaces/default/events"


def pod(name: str, *containers: str, **annotations: str) -> Document:
    """A pod with these containers."""
    return {
        "metadata": {"name": name, "labels": {"app": "web"}, "annotations": annotations},
        "spec": {"containers": [{"name": item} for item in containers]},
    }


class Logs(CannedCluster):
    """Answers for a log its pod and container, as JSON; the query of each is kept."""

    def __init__(self, *pods: Document) -> None:
        one = {POD.path("default", item["metadata"]["name"]): item for item in pods}
        super().__init__({**one, POD.path("default"): canned_cluster.listed(*pods)})
        self.asked: dict[str, str] = {}

    async def send(self, request: Request) -> Response:
        """The canned answer."""
        if request.path.endswith("/log"):
            name = request.path.split("/")[-2]
            self.asked[name] = request.query.get("container", "")
            return Response(200, b"a line\n")
        return await super().send(request)


def test_first_container_is_taken_where_none_is_named(
    tmp_path: Path, rng: Stream, log: Logger
) -> None:
    there = Logs(pod("a", "web", "side"))
    result = there.run(tmp_path, rng, log, "logs", "a")
    assert (result.exit_code, result.stdout, there.asked) == (0, "a line\n", {"a": "web"})
    assert "container web, the first of web, side; choose another one with -c" in result.stderr
    result = there.run(tmp_path, rng, log, "logs", "pod/a", "-c", "side")
    assert (result.stderr, there.asked) == ("", {"a": "side"})


def test_annotated_container_is_taken(tmp_path: Path, rng: Stream, log: Logger) -> None:
    annotated = pod("a", "web", "side", **{"kubectl.kubernetes.io/default-container": "side"})
    there = Logs(annotated, pod("b", "main"))
    result = there.run(tmp_path, rng, log, "logs", "-l", "app=web")
    assert (result.exit_code, result.stderr) == (0, "")
    assert there.asked == {"a": "side", "b": ""}


def test_default_container_of_many_pods_is_stated_once(
    tmp_path: Path, rng: Stream, log: Logger
) -> None:
    there = Logs(pod("a", "web", "side"), pod("b", "web", "side"))
    result = there.run(tmp_path, rng, log, "logs", "-l", "app=web")
    assert there.asked == {"a": "web", "b": "web"}
    assert result.stderr.count("the first of") == 1
    assert sorted(result.stdout.splitlines()) == ["[a] a line", "[b] a line"]


def test_described_texts_of_several_lines_keep_their_place(
    tmp_path: Path, rng: Stream, log: Logger
) -> None:
    made = pod("a", "web")
    made["spec"]["containers"][0] |= {"command": ["sh", "-c", "one\ntwo"], "note": "x\ny"}
    answers = {POD.path("default", "a"): made, EVENTS: canned_cluster.listed()}
    result = CannedCluster(answers).run(tmp_path, rng, log, "describe", "pod", "a")
    assert result.exit_code == 0, result.output
    assert (
        """\
      command:
        - sh
        - -c
        - one
          two
      note:
        x
        y
"""
        in result.stdout
    )
