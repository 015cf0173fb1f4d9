"""Completion of words: verbs, options, kinds, and names as the cluster has them."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from grange.api import codec
from grange.api.http import Request, Response
from grange.api.meta import Document
from grange.api.status import ServiceUnavailable
from grange.app.main import VERBS
from grange.base.clock import Clock, LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli.environment import Environment
from grange.cli.main import group
from grange.cli.verbs.completion import SHELLS
from grange.client.access import Access

PROGRAM = group(VERBS, "0")
KUBECONFIG = """
contexts: [{name: demo, context: {cluster: c}}, {name: other, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "https://c"}}]
current-context: demo
"""
LISTS = {
    "/api/v1/namespaces/default/pods": ["web-1", "web-2", "db-1"],
    "/api/v1/namespaces/test/pods": ["other"],
    "/api/v1/namespaces": ["default", "test"],
    "/apis/grange.dev/v1alpha1/namespaces/default/replicationcontrollers": ["web"],
}
OBJECTS: Mapping[str, Document] = {
    "/api/v1/namespaces/default/pods/web-1": {
        "containers": [{"name": "main"}, {"name": "side"}],
        "initContainers": [{"name": "first"}],
    },
    "/apis/grange.dev/v1alpha1/namespaces/default/replicationcontrollers/web": {
        "template": {"spec": {"containers": [{"name": "program"}]}}
    },
}


class Cluster:
    """A transport to a cluster with a few names and its own kind."""

    def __init__(self, *, reachable: bool = True) -> None:
        self._reachable = reachable

    async def send(self, request: Request) -> Response:
        """A list of names, or what discovery returns."""
        if not self._reachable:
            raise ServiceUnavailable("no answer")
        names = LISTS.get(request.path)
        body: Document = {"items": [{"metadata": {"name": name}} for name in names or ()]}
        if request.path == "/version":
            body = {"gitVersion": "v1.36.0"}
        elif request.path == "/apis":
            body = {"groups": [{"preferredVersion": {"groupVersion": "example.com/v1"}}]}
        elif request.path == "/api/v1":
            body = {"groupVersion": "v1", "resources": []}
        elif request.path == "/apis/example.com/v1":
            widgets = {"name": "widgets", "kind": "Widget", "namespaced": True}
            body = {"groupVersion": "example.com/v1", "resources": [widgets]}
        elif request.path in OBJECTS:
            body = {"spec": OBJECTS[request.path]}
        elif names is None:
            return Response(404, b"{}")
        return Response(200, codec.encode(body))

    async def close(self) -> None:
        """Nothing to release."""


@pytest.fixture
def env(tmp_path: Path, rng: Stream, log: Logger) -> Environment:
    return environment(tmp_path, rng, log, Cluster())


def environment(tmp_path: Path, rng: Stream, log: Logger, cluster: Cluster) -> Environment:
    config = tmp_path / "config"
    config.write_text(KUBECONFIG)

    def connect(_access: Access, _clock: Clock) -> Cluster:
        return cluster

    return Environment(
        clock=LoopClock(),
        rng=rng,
        log=log,
        kubeconfig=(config,),
        interactive=False,
        color=False,
        width=80,
        run=asyncio.run,
        connect=connect,
    )


def completed(env: Environment, line: str) -> list[str]:
    """The completions of the last word of a line."""
    *words, incomplete = line.split(" ")
    found = ShellComplete(PROGRAM, {"obj": env}, "grange", "_GRANGE_COMPLETE")
    return [str(item.value) for item in found.get_completions(words[1:], incomplete)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("grange ap", ["apply"]),
        ("grange rc rollout un", ["undo"]),
        ("grange get --sel", ["--selector"]),
        ("grange get -o js", ["json", "jsonpath="]),
        ("grange completion z", ["zsh"]),
        ("grange get replicationc", ["replicationcontrollers"]),
        ("grange get wid", ["widgets"]),
        ("grange get pods web", ["web-1", "web-2"]),
        ("grange get pods web-1 web", ["web-2"]),
        ("grange get pod/d", ["pod/db-1"]),
        ("grange why pod/web-1 grc/", ["grc/web"]),
        ("grange get -n test pods ", ["other"]),
        ("grange events --for pod/web-1", ["pod/web-1"]),
        ("grange logs w", ["web-1", "web-2"]),
        ("grange rc status ", ["web"]),
        ("grange rc delete grc/", ["grc/web"]),
        ("grange get pods -n ", ["default", "test"]),
        ("grange get pods --context ", ["demo", "other"]),
        ("grange get nothing ", []),
        ("grange delete pod w", ["web-1", "web-2"]),
        ("grange delete replicationc", ["replicationcontrollers"]),
        ("grange scale gr", ["grc", "gru"]),
        ("grange scale grc/", ["grc/web"]),
        ("grange exec web-1 -c ", ["main", "side", "first"]),
        ("grange logs pod/web-1 -c s", ["side"]),
        ("grange attach grc/web -c ", ["program"]),
        ("grange exec nothing -c ", []),
        ("grange exec -c ", []),
    ],
)
def test_words_are_completed(env: Environment, line: str, words: Sequence[str]) -> None:
    assert completed(env, line) == words


@pytest.mark.parametrize(
    "line",
    [
        "grange apply -f ",
        "grange delete -f m",
        "grange job run -f m",
        "grange rc create web -f ",
        "grange rc update-template web -f ",
        "grange rc rollout start web -f ",
        "grange test run m",
        "grange test convert --defaults ",
        "grange get pods --kubeconfig ",
    ],
)
def test_shell_completes_names_of_files(env: Environment, line: str) -> None:
    *words, incomplete = line.split(" ")
    found = ShellComplete(PROGRAM, {"obj": env}, "grange", "_GRANGE_COMPLETE")
    items = found.get_completions(words[1:], incomplete)
    assert [(item.value, item.type) for item in items] == [(incomplete, "file")]


def test_silent_cluster_completes_built_in_kinds_only(
    tmp_path: Path, rng: Stream, log: Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = environment(tmp_path, rng, log, Cluster(reachable=False))
    assert completed(silent, "grange get po") == ["pods", "poddisruptionbudgets", "podgroups"]
    assert completed(silent, "grange get pods ") == []
    (tmp_path / "config").write_text("]")
    assert completed(silent, "grange get --context ") == []
    assert completed(silent, "grange get no") == ["nodes", "nodepools"]
    assert "".join(capsys.readouterr()) == ""


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_script_calls_the_program(shell: str) -> None:
    outcome = CliRunner().invoke(PROGRAM, ["completion", shell], prog_name="grange")
    assert outcome.exit_code == 0
    assert f"_GRANGE_COMPLETE={shell}_complete" in outcome.output


def test_misspelled_kind_is_corrected(env: Environment) -> None:
    for word, meant in (("pdos", "pods"), ("replicationcontrolers", "replicationcontrollers")):
        outcome = CliRunner().invoke(PROGRAM, ["get", word], obj=env)
        assert outcome.exit_code == 1
        assert f'no resource type "{word}"; did you mean {meant}' in outcome.output


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["get", "all", "-w"], "join kinds by commas, for example pods,services"),
        (["describe", "all"], "join kinds by commas, for example pods,services"),
        (["delete", "all", "--all"], "join kinds by commas, for example pods,services"),
        (["describe", "shop"], "the name of an object comes after its kind, as in pod/shop"),
    ],
)
def test_unknown_kind_lists_each_kind_once(
    env: Environment, words: Sequence[str], hint: str
) -> None:
    outcome = CliRunner().invoke(PROGRAM, words, obj=env)
    assert outcome.exit_code == 1
    reported, _, kinds = outcome.output.strip().partition("; it has: ")
    assert reported.endswith(hint)
    assert len(set(kinds.split(", "))) == len(kinds.split(", "))


def test_version_reports_client_and_server(
    env: Environment, tmp_path: Path, rng: Stream, log: Logger
) -> None:
    shown = CliRunner().invoke(PROGRAM, ["version"], obj=env)
    assert shown.exit_code == 0
    assert shown.output.startswith("Client: ")
    assert "Server: v1.36.0" in shown.output
    silent = environment(tmp_path, rng, log, Cluster(reachable=False))
    shown = CliRunner().invoke(PROGRAM, ["version", "-o", "json"], obj=silent)
    assert shown.exit_code == 0
    assert set(codec.decode_document(shown.stdout.encode())) == {"clientVersion"}
    assert "server not reached: no answer" in shown.stderr
    shown = CliRunner().invoke(PROGRAM, ["version", "--client"], obj=silent)
    assert shown.stderr == ""
