"""kubectl, unmodified, against our server over HTTPS: the verbs of a working day."""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest
from tests.e2e.kubectl import Kubectl, Outcome
from tests.unit.apiserver.server import NODES, PODS, Server

from grange.agent.container_runtime import ContainerID, PodSetup, Program
from grange.agent.runtimes.fake import FakeMachine, FakeRuntime, Script
from grange.agent.usage_sampler import UsageSampler
from grange.api.http import ADMIN
from grange.api.meta import Document
from grange.apiserver.authn import StaticTokens
from grange.apiserver.listener import Listener
from grange.apiserver.pod_logs import PodLogOptions
from grange.app import certificates
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.client import kubeconfig_contexts

pytestmark = pytest.mark.e2e
BEARER = "an-admin-token"

POD = """
apiVersion: v1
kind: Pod
metadata:
  name: web
  labels: {app: web}
spec:
  containers:
  - name: main
    command: ["sleep", "100"]
    env:
    - {name: MODE, value: plain}
"""
CONTROLLER = """
apiVersion: grange.dev/v1alpha1
kind: ReplicationController
metadata: {name: web}
spec:
  replicas: 2
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: main, command: [sleep, "100"]}]
"""


class Output:
    """A container that printed two lines and prints more when followed."""

    async def read(self, pod: Document, options: PodLogOptions) -> AsyncGenerator[bytes, None]:
        lines = [b"first\n", b"second\n"]
        for line in lines[-options.tail_lines :] if options.tail_lines else lines:
            yield line
        if options.follow:
            yield b"followed\n"


@pytest.fixture
def runtime(clock: Clock) -> FakeRuntime:
    return FakeRuntime(FakeMachine({"sleep": Script(cpu=0.25, memory_bytes=8 << 20)}), clock)


@pytest.fixture
def sampler(runtime: FakeRuntime, clock: Clock) -> UsageSampler:
    return UsageSampler(runtime, ("node-1",), clock)


@pytest.fixture
async def server(clock: Clock, rng: Stream, log: Logger, sampler: UsageSampler) -> Server:
    made = Server(clock=clock, rng=rng, log=log, logs=Output(), usage=sampler)
    await made.application.bootstrap()
    return made


@pytest.fixture
async def kubectl(
    server: Server, tmp_path: Path, clock: Clock, log: Logger
) -> AsyncIterator[Kubectl]:
    keys = certificates.ensure(tmp_path / "pki", names=("127.0.0.1",), now=clock.now())
    async with Listener(
        server.application.handle,
        authenticator=StaticTokens({BEARER: ADMIN}),
        ssl_context=keys.server_context(),
        clock=clock,
        log=log,
        drain=server.application.end_streams,
    ) as listener:
        config = tmp_path / "kubeconfig"
        kubeconfig_contexts.merge(config, "grange", listener.url, keys.ca_pem, BEARER, switch=True)
        yield Kubectl(tmp_path, config)


async def ready(server: Server, name: str = "web") -> None:
    """Do what scheduler and agent would."""
    assert (await server.bind(name)).code == 201
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    assert (await server.patch(f"{PODS}/{name}/status", {"status": running})).code == 200


async def test_apply_creates_then_changes_then_leaves_alone(
    kubectl: Kubectl, server: Server
) -> None:
    assert (await kubectl.ok("apply", "-f", "-", stdin=POD)).out == "pod/web created\n"
    assert (await kubectl.ok("apply", "-f", "-", stdin=POD)).out == "pod/web unchanged\n"
    revision = server.store.revision
    changed = POD.replace("app: web", "app: web, tier: front")
    assert (await kubectl.ok("apply", "-f", "-", stdin=changed)).out == "pod/web configured\n"
    assert server.store.revision == revision + 1
    removed = await kubectl.ok("apply", "-f", "-", stdin=POD)
    assert removed.out == "pod/web configured\n"
    stored = (await server.get(f"{PODS}/web")).body
    assert stored["metadata"]["labels"] == {"app": "web"}
    assert (await kubectl("diff", "-f", "-", stdin=POD)).code == 0


async def test_apply_of_our_own_kind_and_its_table(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=CONTROLLER)
    scaled = CONTROLLER.replace("replicas: 2", "replicas: 3")
    done = await kubectl.ok("apply", "-f", "-", stdin=scaled)
    assert "configured" in done.out
    table = (await kubectl.ok("get", "grc")).lines
    assert table[0].split()[:3] == ["NAME", "DESIRED", "CURRENT"]
    assert table[1].split()[:2] == ["web", "3"]
    assert "Replicas:" in (await kubectl.ok("describe", "grc", "web")).out


async def test_get_shows_tables_objects_and_selections(kubectl: Kubectl, server: Server) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=POD)
    await kubectl.ok("apply", "-f", "-", stdin=POD.replace("web", "other"))
    await ready(server)
    assert (await kubectl.ok("get", "pods")).column == ["other", "web"]
    wide = (await kubectl.ok("get", "pods", "web", "-o", "wide")).lines
    assert "NODE" in wide[0]
    assert "node-1" in wide[1]
    everywhere = await kubectl.ok("get", "pods", "-A")
    assert everywhere.lines[0].startswith("NAMESPACE")
    assert (await kubectl.ok("get", "pods", "-l", "app=web")).column == ["web"]
    chosen = await kubectl.ok("get", "pods", "--field-selector", "spec.nodeName=node-1")
    assert chosen.column == ["web"]
    assert (await kubectl.ok("get", "pod", "web", "-o", "json")).document["kind"] == "Pod"
    assert "kind: Pod" in (await kubectl.ok("get", "pod", "web", "-o", "yaml")).out
    path = "jsonpath={.items[*].metadata.name}"
    assert (await kubectl.ok("get", "po", "-o", path)).out == "other web"
    pages = await kubectl.ok("get", "pods", "--chunk-size", "1")
    assert pages.column == ["other", "web"]
    assert (await kubectl.ok("get", "all", "-o", "name")).lines == ["pod/other", "pod/web"]
    missing = await kubectl("get", "pod", "none")
    assert (missing.code, missing.err) == (
        1,
        'Error from server (NotFound): pods "none" not found\n',
    )


async def test_get_watches(kubectl: Kubectl, server: Server) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=POD)
    process = await kubectl.start("get", "pods", "-w")
    assert process.stdout is not None
    assert b"NAME" in await process.stdout.readline()
    assert b"Pending" in await process.stdout.readline()
    await ready(server)
    seen = b""
    while b"Running" not in seen:
        seen = await process.stdout.readline()
    await server.delete(f"{PODS}/web", gracePeriodSeconds="0")
    assert b"web" in await process.stdout.readline()
    process.kill()
    await process.wait()
    await process.communicate()


async def test_describe_shows_the_story(kubectl: Kubectl, server: Server) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=POD)
    await server.made(NODES, {"metadata": {"name": "node-1"}})
    pod = (await server.get(f"{PODS}/web")).body
    await server.made(
        "/api/v1/namespaces/default/events",
        {
            "metadata": {"name": "web.1"},
            "involvedObject": {
                "kind": "Pod",
                "namespace": "default",
                "name": "web",
                "uid": pod["metadata"]["uid"],
            },
            "reason": "Pulled",
            "message": "the image is there",
            "type": "Normal",
            "count": 1,
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:00Z",
            "source": {"component": "agent"},
        },
    )
    story = (await kubectl.ok("describe", "pod", "web")).out
    assert re.search(r"MODE: +plain", story)
    assert "the image is there" in story
    await ready(server)
    assert "web" in (await kubectl.ok("describe", "node", "node-1")).out
    assert "Active" in (await kubectl.ok("describe", "namespace", "default")).out
    assert "Pulled" in (await kubectl.ok("get", "events")).out


async def test_create_and_what_it_refuses(kubectl: Kubectl) -> None:
    assert (await kubectl.ok("create", "-f", "-", stdin=POD)).out == "pod/web created\n"

    async def refused(text: str, *words: str) -> str:
        outcome = await kubectl("create", "-f", "-", *words, stdin=text)
        assert outcome.code == 1
        return outcome.err

    assert 'pods "web" already exists' in await refused(POD)
    assert 'unknown field "spec.containers[0].comand"' in await refused(
        POD.replace("command", "comand").replace("name: web", "name: x")
    )
    assert "spec.containers[0].command" in await refused(
        "\n".join(line for line in POD.replace("web", "x").splitlines() if "command" not in line)
    )
    assert 'no matches for kind "Pood"' in await refused(POD.replace("Pod", "Pood"))
    assert 'namespaces "nowhere" not found' in await refused(POD, "-n", "nowhere")
    dry = await kubectl.ok(
        "create", "-f", "-", "--dry-run=server", "-o", "name", stdin=POD.replace("web", "dry")
    )
    assert dry.out == "pod/dry\n"
    assert (await kubectl("get", "pod", "dry")).code == 1


async def test_generators_create_what_they_are_reported(kubectl: Kubectl) -> None:
    """These go through typed clients, which send protobuf."""
    await kubectl.ok("create", "namespace", "team")
    settings = ("create", "configmap", "settings", "-n", "team", "--from-literal=a=b")
    await kubectl.ok(*settings)
    assert "already exists" in (await kubectl(*settings)).err
    await kubectl.ok("create", "secret", "generic", "keys", "--from-literal=password=hunter2")
    await kubectl.ok("create", "service", "clusterip", "web", "--tcp=80:http")
    configmap = await kubectl.ok("get", "cm", "settings", "-n", "team", "-o", "json")
    assert configmap.document["data"] == {"a": "b"}
    secret = await kubectl.ok("get", "secret", "keys", "-o", "jsonpath={.data.password}")
    assert secret.out == "aHVudGVyMg=="
    service = (await kubectl.ok("get", "service", "web", "-o", "json")).document
    assert service["spec"]["ports"][0]["targetPort"] == "http"
    assert "ClusterIP" in (await kubectl.ok("describe", "service", "web")).out
    await kubectl.ok("create", "service", "nodeport", "open", "--tcp=80")
    opened = (await kubectl.ok("get", "service", "open", "-o", "json")).document["spec"]
    assert opened["clusterIP"].startswith("127.")
    assert 30000 <= opened["ports"][0]["nodePort"] <= 32767
    await kubectl.ok("create", "pdb", "web", "--selector=app=web", "--min-available=50%")
    budget = await kubectl.ok("get", "pdb", "web", "-o", "jsonpath={.spec.minAvailable}")
    assert budget.out == "50%"
    await kubectl.ok("create", "priorityclass", "high", "--value=1000", "--description=first")
    assert (await kubectl.ok("get", "pc", "high", "-o", "jsonpath={.value}")).out == "1000"
    await kubectl.ok("run", "task", "--image=none", "--restart=Never", "--command", "--", "true")
    assert (await kubectl.ok("get", "pods")).column == ["task"]


async def test_drain_evicts_and_cordons(kubectl: Kubectl, server: Server, clock: Clock) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=POD)
    await server.made(NODES, {"metadata": {"name": "node-1"}})
    await ready(server)
    async with Nursery() as nursery:
        nursery.start(kubectl.ok("drain", "node-1", "--force", "--timeout=240s"))
        while "deletionTimestamp" not in (await server.get(f"{PODS}/web")).body["metadata"]:
            await clock.sleep(0.02)
        await server.delete(f"{PODS}/web", gracePeriodSeconds="0")
    assert (await server.get(f"{NODES}/node-1")).body["spec"]["unschedulable"]
    await kubectl.ok("uncordon", "node-1")
    assert "unschedulable" not in (await server.get(f"{NODES}/node-1")).body["spec"]


async def test_delete_waits_until_the_pod_is_gone(
    kubectl: Kubectl, server: Server, clock: Clock
) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=POD)
    await ready(server)
    outcomes: list[Outcome] = []

    async def delete() -> None:
        outcomes.append(await kubectl.ok("delete", "pod", "web"))

    async with Nursery() as nursery:
        nursery.start(delete())
        while "deletionTimestamp" not in (await server.get(f"{PODS}/web")).body["metadata"]:
            await clock.sleep(0.02)
        await clock.sleep(0.3)
        assert not outcomes, "kubectl came back before the pod was gone"
        await server.delete(f"{PODS}/web", gracePeriodSeconds="0")
    assert 'pod "web" deleted' in outcomes[0].out
    assert (await kubectl("delete", "pod", "web")).code == 1
    assert (await kubectl.ok("delete", "pod", "web", "--ignore-not-found")).out == ""
    protected = await kubectl("delete", "namespace", "default")
    assert "may not be deleted" in protected.err


async def test_delete_all_and_by_force(kubectl: Kubectl, server: Server) -> None:
    for name in ("a", "b"):
        await kubectl.ok("apply", "-f", "-", stdin=POD.replace("name: web", f"name: {name}"))
    await ready(server, "a")
    await kubectl.ok("delete", "pods", "--all", "--force", "--grace-period=0")
    assert (await server.get(PODS)).names == []


async def test_logs_and_logs_that_follow(kubectl: Kubectl, server: Server) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=POD)
    early = await kubectl("logs", "web")
    assert "does not have a host assigned" in early.err
    await ready(server)
    assert (await kubectl.ok("logs", "web")).lines == ["first", "second"]
    assert (await kubectl.ok("logs", "web", "--tail=1")).lines == ["second"]
    assert (await kubectl.ok("logs", "-f", "web", "-c", "main")).lines[-1] == "followed"
    assert (await kubectl.ok("logs", "-l", "app=web")).lines == ["first", "second"]
    assert "container none is not valid" in (await kubectl("logs", "web", "-c", "none")).err


async def test_top_shows_nodes_and_pods(
    kubectl: Kubectl, server: Server, runtime: FakeRuntime, sampler: UsageSampler, clock: Clock
) -> None:
    early = await kubectl("top", "nodes")
    assert early.code == 1
    assert "no usage is measured yet" in early.err
    amounts = {"cpu": "1", "memory": "32Mi", "pods": "10"}
    status = {"capacity": amounts, "allocatable": amounts}
    await server.made(NODES, {"metadata": {"name": "node-1"}})
    assert (await server.patch(f"{NODES}/node-1/status", {"status": status})).code == 200
    await kubectl.ok("apply", "-f", "-", stdin=POD)
    await ready(server)
    uid = (await server.get(f"{PODS}/web")).body["metadata"]["uid"]
    await runtime.prepare(PodSetup(uid, "default", "web", "node-1"))
    await runtime.start(ContainerID(uid, "main", 0), Program(("sleep",), {}), ())
    await clock.sleep(0.1)
    await sampler.measure()
    nodes = await kubectl.ok("top", "nodes", "--no-headers")
    assert nodes.out.split() == ["node-1", "250m", "25%", "8Mi", "25%"]
    pods = await kubectl.ok("top", "pods", "-l", "app=web", "--containers", "--no-headers")
    assert pods.out.split() == ["web", "main", "250m", "8Mi"]


async def test_wait_sees_conditions_and_deletion(
    kubectl: Kubectl, server: Server, clock: Clock
) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=POD)
    late = await kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=0.2s")
    assert late.code == 1
    async with Nursery() as nursery:
        nursery.start(kubectl.ok("wait", "--for=condition=Ready", "pod/web", "--timeout=240s"))
        await clock.sleep(0.2)
        await ready(server)
    async with Nursery() as nursery:
        nursery.start(kubectl.ok("wait", "--for=delete", "pod/web", "--timeout=240s"))
        await clock.sleep(0.2)
        await server.delete(f"{PODS}/web", gracePeriodSeconds="0")


async def test_patch_label_annotate_edit_and_replace(kubectl: Kubectl, server: Server) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=CONTROLLER)
    patches = (
        ("merge", {"spec": {"replicas": 3}}),
        ("json", [{"op": "replace", "path": "/spec/replicas", "value": 4}]),
    )
    for kind, patch in patches:
        await kubectl.ok("patch", "grc", "web", "--type", kind, "-p", json.dumps(patch))
    await kubectl.ok("apply", "-f", "-", stdin=POD)
    toleration = {"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}}
    await kubectl.ok("patch", "pod", "web", "-p", json.dumps(toleration))
    await kubectl.ok("label", "pod", "web", "tier=front")
    assert (await kubectl("label", "pod", "web", "tier=back")).code == 1
    await kubectl.ok("label", "pod", "web", "tier=back", "--overwrite")
    await kubectl.ok("annotate", "pod", "web", "example.com/note=hello")
    status = {"status": {"phase": "Running"}}
    await kubectl.ok("patch", "pod", "web", "--subresource=status", "--type=merge",
                     "-p", json.dumps(status))  # fmt: skip
    stored = (await server.get(f"{PODS}/web")).body
    assert stored["metadata"]["labels"] == {"app": "web", "tier": "back"}
    assert stored["metadata"]["annotations"]["example.com/note"] == "hello"
    assert stored["status"]["phase"] == "Running"
    assert len(stored["spec"]["tolerations"]) == 3
    live = await kubectl.ok("get", "grc", "web", "-o", "json")
    assert live.document["spec"]["replicas"] == 4
    await kubectl.ok("replace", "-f", "-", stdin=live.out.replace('"replicas": 4', '"replicas": 5'))
    stale = await kubectl("replace", "-f", "-", stdin=live.out)
    assert "Conflict" in stale.err


async def test_scale_is_by_the_subresource(kubectl: Kubectl, server: Server) -> None:
    path = "/apis/grange.dev/v1alpha1/namespaces/default/replicationcontrollers/web"
    await kubectl.ok("apply", "-f", "-", stdin=CONTROLLER)

    async def wanted() -> int:
        replicas: int = (await server.get(path)).body["spec"]["replicas"]
        return replicas

    done = await kubectl.ok("scale", "grc", "web", "--replicas", "3")
    assert done.out == "replicationcontroller.grange.dev/web scaled\n"
    assert await wanted() == 3
    refused = await kubectl("scale", "grc/web", "--replicas", "9", "--current-replicas", "2")
    assert refused.code == 1
    assert "Expected replicas to be 2, was 3" in refused.err
    assert await wanted() == 3
    await kubectl.ok("scale", "grc/web", "--replicas", "1", "--current-replicas", "3")
    assert await wanted() == 1
    await kubectl.ok("scale", "grc/web", "--replicas", "0", "--current-replicas", "1")
    assert await wanted() == 0
    shown = (await kubectl.ok("get", "grc", "web", "--subresource=scale", "-o", "json")).document
    assert (shown["kind"], shown["spec"]) == ("Scale", {"replicas": 0})
    table = (await kubectl.ok("get", "grc", "web", "--subresource=scale")).lines
    assert table[0].split()[:3] == ["NAME", "DESIRED", "AVAILABLE"]
    patch = json.dumps({"spec": {"replicas": 4}})
    await kubectl.ok("patch", "grc", "web", "--subresource=scale", "--type=merge", "-p", patch)
    assert await wanted() == 4
    await kubectl.ok("apply", "-f", "-", stdin=POD)
    for what, why in (
        ("pod/web", "could not find the requested resource"),
        ("grc/none", '"none" not found'),
    ):
        outcome = await kubectl("scale", what, "--replicas", "2")
        assert outcome.code == 1
        assert why in outcome.err


async def test_edit_saves_what_the_editor_leaves(
    kubectl: Kubectl, server: Server, tmp_path: Path
) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=CONTROLLER)
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/replicas: 2/replicas: 7/' \"$1\"\n")
    editor.chmod(0o755)
    edited = await Kubectl(tmp_path, kubectl.kubeconfig, (("KUBE_EDITOR", str(editor)),)).ok(
        "edit", "grc", "web"
    )
    assert "edited" in edited.out
    path = "/apis/grange.dev/v1alpha1/namespaces/default/replicationcontrollers/web"
    assert (await server.get(path)).body["spec"]["replicas"] == 7


async def test_discovery_explains_itself(kubectl: Kubectl, server: Server) -> None:
    resources = (await kubectl.ok("api-resources")).out
    for info in server.application.scheme:
        assert info.plural in resources
    assert "grange.dev/v1alpha1" in (await kubectl.ok("api-versions")).out
    field = (await kubectl.ok("explain", "pod.spec.containers.command")).out
    assert "command <[]string>" in field
    own = (await kubectl.ok("explain", "grc.spec")).out
    assert "replicas" in own
    version = (await kubectl.ok("version", "-o", "json")).document
    assert version["serverVersion"]["minor"] == "36"
    assert "ok" in (await kubectl.ok("get", "--raw", "/readyz?verbose")).out


async def test_wrong_token_is_reported(kubectl: Kubectl, tmp_path: Path) -> None:
    text = kubectl.kubeconfig.read_text()
    kubectl.kubeconfig.write_text(text.replace(BEARER, "another"))
    refused = await kubectl("get", "pods")
    assert refused.code == 1
    assert "must be logged in" in refused.err or "Unauthorized" in refused.err
