"""What ``grange apply`` prints that it did, or would do."""

import copy

import pytest
from tests.support.controller_world import World, world
from tests.unit.cli.sessions import session
from tests.unit.controllers import builders

from grange.api import codec
from grange.api.http import ADMIN, Request, Response
from grange.api.kinds import CONFIGMAP, POD, REPLICATIONCONTROLLER
from grange.api.meta import Document
from grange.api.pod_fields import LIMITS_LABEL
from grange.api.status import NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli.verbs.apply import LAST_APPLIED, apply_one
from grange.client.client import Client
from grange.client.transports.inprocess import InProcess

WEB: Document = {
    "apiVersion": "grange.dev/v1alpha1",
    "kind": "ReplicationController",
    "metadata": {"name": "web"},
    "spec": {"replicas": 1, "template": builders.TEMPLATE},
}
SETTINGS: Document = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "settings"},
    "data": {"a": "1"},
}


async def outcome(there: World, document: Document, dry_run: str = "none") -> str:
    kind = CONFIGMAP if document["kind"] == "ConfigMap" else REPLICATIONCONTROLLER
    reported, _ = await apply_one(session(there), kind, copy.deepcopy(document), dry_run=dry_run)
    return reported


async def stored(there: World, document: Document) -> Document:
    name = document["metadata"]["name"]
    if document["kind"] == "ConfigMap":
        return await there.client.get_document(CONFIGMAP, name, "default")
    return await there.client.get_document(REPLICATIONCONTROLLER, name, "default")


@pytest.mark.parametrize("dry_run", ["server", "client"])
@pytest.mark.parametrize("document", [WEB, SETTINGS], ids=["controller", "configmap"])
async def test_dry_run_shows_what_an_apply_would_do(
    document: Document, dry_run: str, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        changed = copy.deepcopy(document)
        changed["metadata"]["labels"] = {"team": "a"}
        fewer = copy.deepcopy(document)
        if "data" in fewer:
            fewer["data"] = {}
        else:
            fewer["spec"]["replicas"] = 0
        assert await outcome(there, document, dry_run) == "created"
        assert await outcome(there, document) == "created", "the dry run kept nothing"
        assert await outcome(there, document, dry_run) == "unchanged"
        for other in (changed, fewer):
            before = await stored(there, document)
            assert await outcome(there, other, dry_run) == "configured"
            after = await stored(there, document)
            assert after == before
        assert await outcome(there, document) == "unchanged"
        assert await outcome(there, changed) == "configured"
        assert await outcome(there, changed, dry_run) == "unchanged"


async def test_kind_that_is_not_served_comes_with_a_manifest(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    document: Document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "template": builders.TEMPLATE},
    }
    async with world(clock, rng, log, hands=False) as there:
        with pytest.raises(NotFound) as caught:
            await session(there).kind_of(document)
        message = caught.value.message
        reported, _, manifest = message.partition(":\n\n")
        assert reported.endswith("use ReplicationController in grange.dev/v1alpha1")
        (made,) = codec.load_yaml_documents(manifest)
        assert await outcome(there, made) == "created"
        with pytest.raises(NotFound, match="use ReplicationController in grange"):
            await session(there).kind("deployments")
        with pytest.raises(NotFound, match=r"it serves: .*ConfigMap"):
            await session(there).kind_of({"apiVersion": "example.com/v1", "kind": "Widget"})
        for version, kind, meant in (
            ("v1", "Pdo", r"Pod \(v1\)"),
            ("v1", "replicationcontroller", r"ReplicationController \(grange.dev/v1alpha1\)"),
        ):
            with pytest.raises(NotFound, match=f"; did you mean .*{meant}.*\\?$"):
                await session(there).kind_of({"apiVersion": version, "kind": kind})


async def test_manifest_shows_where_a_command_is_needed(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    containers = [{"image": "nginx", "name": "web"}, {"name": "own", "command": ["x"]}]
    document: Document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "template": {"spec": {"containers": containers}}},
    }
    async with world(clock, rng, log, hands=False) as there:
        with pytest.raises(NotFound) as caught:
            await session(there).kind_of(document)
        reported, _, manifest = caught.value.message.partition(":\n\n")
        assert "nodes here run programs of the machine, not images" in reported
        comment = "# command: [PROGRAM, ARGUMENT]  # to add: nodes run programs, not images"
        assert [line.strip() for line in manifest.splitlines() if "#" in line] == [comment]
        (made,) = codec.load_yaml_documents(manifest)
        assert made["spec"]["template"]["spec"]["containers"] == containers
        run = manifest.replace("# command: [PROGRAM, ARGUMENT]", "command: [true]")
        (made,) = codec.load_yaml_documents(run.replace("[true]", '["true"]'))
        assert made["spec"]["template"]["spec"]["containers"][0]["command"] == ["true"]


async def test_warnings_of_the_server_are_printed_once(
    clock: Clock, rng: Stream, log: Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    warned = {"warning": '299 - "unknown field \\"spec.x\\"", 299 - "duplicate field"'}
    async with world(clock, rng, log, hands=False) as there:
        opened = session(there)

        async def answer(_request: Request) -> Response:
            return Response(200, b"{}", headers=warned)

        opened.client = Client(InProcess(answer, ADMIN), clock=clock)
        for _ in range(2):
            await opened.fetch(Request("PUT", "/x"))
    printed = capsys.readouterr()
    assert printed.err == 'Warning: unknown field "spec.x"\nWarning: duplicate field\n'
    assert printed.out == ""


LIMITED: Document = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "p-"},
    "spec": {
        "containers": [{"name": "m", "command": ["x"], "resources": {"limits": {"cpu": "1"}}}]
    },
}


@pytest.mark.parametrize(
    ("values", "warned"), [((), True), (("cgroup",), False), (("cgroup", "none"), True)]
)
async def test_feature_that_every_node_has_needs_no_warning(
    values: tuple[str, ...],
    warned: bool,
    clock: Clock,
    rng: Stream,
    log: Logger,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        for at, value in enumerate(values):
            await there.add_node(f"n{at}", labels={LIMITS_LABEL: value})
        opened = session(there)
        for _ in range(2):
            await apply_one(opened, POD, copy.deepcopy(LIMITED))
    printed = capsys.readouterr().err
    assert printed.count("needs a node with grange.dev/limits=cgroup") == int(warned)


async def test_apply_takes_turns_with_kubectl(clock: Clock, rng: Stream, log: Logger) -> None:
    """Go sorts keys and escapes some characters; the same manifest is unchanged in either spelling."""
    document = {**SETTINGS, "data": {"b": "<&>", "a": "é"}}
    go = (
        '{"apiVersion":"v1","data":{"a":"é","b":"\\u003c\\u0026\\u003e"},"kind":"ConfigMap",'
        '"metadata":{"annotations":{},"name":"settings","namespace":"default"}}\n'
    )
    async with world(clock, rng, log, hands=False) as there:
        assert await outcome(there, document) == "created"
        found = await stored(there, document)
        assert found["metadata"]["annotations"][LAST_APPLIED] == go

        spaced = go.replace(":", ": ")
        patch = {"metadata": {"annotations": {LAST_APPLIED: spaced}}}
        await there.client.patch(CONFIGMAP, "settings", "default", patch=patch)
        assert await outcome(there, document) == "unchanged"
        found = await stored(there, document)
        assert found["metadata"]["annotations"][LAST_APPLIED] == spaced
