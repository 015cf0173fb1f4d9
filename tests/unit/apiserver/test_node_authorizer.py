"""What the agent of a node may do, through the whole server: its node and its pods, nothing else."""

import json
from typing import Any

import pytest
from tests.unit.apiserver.server import NODES, PODS, Answer, Server, pod

from grange.agent import heartbeat
from grange.agent.config import NodeConfig
from grange.api.http import ANONYMOUS, User
from grange.api.meta import Document

A = User("system:node:a", ("system:nodes", "system:authenticated"))
CORE = "/api/v1/namespaces/default"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
ACCOUNTS = f"{CORE}/serviceaccounts"


@pytest.fixture
async def cluster(server: Server) -> Server:
    """Nodes a and b with a pod each, which names a Secret, a ConfigMap and an account."""
    for name in ("a", "b"):
        await server.made(NODES, {"metadata": {"name": name}})
        await server.made(ACCOUNTS, {"metadata": {"name": f"of-{name}"}})
        for kind in ("secrets", "configmaps"):
            await server.made(f"{CORE}/{kind}", {"metadata": {"name": f"of-{name}"}})
        source = {"secretKeyRef": {"name": f"of-{name}", "key": "k"}}
        container = {"name": "main", "command": ["a"], "env": [{"name": "A", "valueFrom": source}]}
        volume = {"name": "v", "configMap": {"name": f"of-{name}"}}
        spec = {"containers": [container], "volumes": [volume], "serviceAccountName": f"of-{name}"}
        await server.made(PODS, {"metadata": {"name": name}, "spec": spec})
        await server.bind(name, name)
    return server


async def ask(server: Server, method: str, path: str, body: Any = None, **query: str) -> Answer:
    media = "application/merge-patch+json" if method == "PATCH" else "application/json"
    return await server.ask(method, path, body, query=query, user=A, media=media)


@pytest.mark.parametrize(
    "path",
    [
        f"{PODS}/a",
        f"{NODES}/a",
        f"{NODES}/b",
        f"{CORE}/secrets/of-a",
        f"{CORE}/configmaps/of-a",
        f"{CORE}/serviceaccounts/of-a",
        f"{CORE}/services",
        "/apis/discovery.k8s.io/v1/endpointslices",
    ],
)
async def test_node_reads_what_its_pods_name(cluster: Server, path: str) -> None:
    assert (await ask(cluster, "GET", path)).code == 200


@pytest.mark.parametrize(
    "path",
    [
        PODS,
        NODES,
        f"{PODS}/b",
        f"{NODES}/b/status",
        f"{CORE}/secrets",
        f"{CORE}/secrets/of-b",
        f"{CORE}/secrets/missing",
        f"{CORE}/configmaps",
        f"{CORE}/configmaps/of-b",
        f"{CORE}/serviceaccounts/of-b",
        "/api/v1/namespaces/kube-system/secrets/of-a",
        "/apis/grange.dev/v1alpha1/queues",
        "/metrics",
    ],
)
async def test_node_reads_nothing_else(cluster: Server, path: str) -> None:
    answer = await ask(cluster, "GET", path)
    assert answer.code == 403, answer.text


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (f"{PODS}/b/tunnel", 503),  # allowed; the test has no agent
        (f"{PODS}/a/exec", 403),
        (f"{PODS}/b/exec", 403),
        (f"{PODS}/a/attach", 403),
        (f"{PODS}/a/log", 403),
    ],
)
async def test_node_connects_to_pods_for_services_only(
    cluster: Server, path: str, code: int
) -> None:
    answer = await ask(cluster, "GET", path, port="80", command="ls", stdout="1")
    assert answer.code == code, answer.text


@pytest.mark.parametrize(
    ("path", "selector", "code"),
    [
        ("/api/v1/pods", "spec.nodeName=a", 200),
        ("/api/v1/pods", "spec.nodeName=b", 403),
        ("/api/v1/pods", "spec.nodeName!=b", 403),
        ("/api/v1/pods", "metadata.name=a", 403),
        (NODES, "metadata.name=a", 200),
        (NODES, "metadata.name=b", 403),
        (f"{CORE}/secrets", "metadata.name=of-a", 200),
        (f"{CORE}/secrets", "metadata.name=of-b", 403),
        ("/api/v1/secrets", "metadata.name=of-a", 403),
    ],
)
async def test_collections_are_limited_by_selector(
    cluster: Server, path: str, selector: str, code: int
) -> None:
    assert (await ask(cluster, "GET", path, fieldSelector=selector)).code == code


async def test_references_end_with_the_pod(cluster: Server) -> None:
    assert (await ask(cluster, "GET", f"{CORE}/secrets/of-a")).code == 200
    status = {"status": {"phase": "Succeeded"}}
    assert (await ask(cluster, "PATCH", f"{PODS}/a/status", status)).code == 200
    assert (await ask(cluster, "GET", f"{CORE}/secrets/of-a")).code == 403


async def test_node_writes_the_status_of_its_own_pods(cluster: Server) -> None:
    body = {"status": {"phase": "Running"}}
    assert (await ask(cluster, "PATCH", f"{PODS}/a/status", body)).code == 200
    assert (await ask(cluster, "PATCH", f"{PODS}/b/status", body)).code == 403
    assert (await ask(cluster, "PATCH", f"{PODS}/a", {"metadata": {}})).code == 403
    assert (await ask(cluster, "POST", PODS, pod("new"))).code == 403
    assert (await ask(cluster, "POST", f"{PODS}/a/binding", {"target": {"name": "a"}})).code == 403
    assert (await ask(cluster, "DELETE", f"{PODS}/b")).code == 403
    assert (await ask(cluster, "DELETE", PODS)).code == 403


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ({"metadata": {"labels": {"kubernetes.io/hostname": "a", "disk": "ssd"}}}, 200),
        ({"metadata": {"labels": {"grange.dev/isolation": "none"}}}, 200),
        ({"metadata": {"labels": {"grange.dev/network": "shared"}}}, 200),
        ({"metadata": {"labels": {"node-restriction.kubernetes.io/x": "y"}}}, 403),
        ({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}, 403),
        ({"metadata": {"labels": {"grange.dev/leased": "x"}}}, 403),
        ({"metadata": {"labels": {"a.grange.dev/x": "x"}}}, 403),
        ({"spec": {"podCIDR": "127.1.0.0/17", "podCIDRs": ["127.1.0.0/17"]}}, 200),
        ({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}, 403),
        ({"spec": {"unschedulable": True}}, 403),
        ({"metadata": {"finalizers": ["a.b/c"]}}, 403),
    ],
)
async def test_node_changes_only_its_part_of_its_node(
    cluster: Server, patch: Document, code: int
) -> None:
    answer = await ask(cluster, "PATCH", f"{NODES}/a", patch)
    assert answer.code == code, answer.text
    assert (await ask(cluster, "PATCH", f"{NODES}/b", patch)).code == 403


async def test_node_may_set_every_label_that_its_agent_reports(cluster: Server) -> None:
    labels = heartbeat.metadata(NodeConfig("a", {}))["labels"]
    answer = await ask(cluster, "PATCH", f"{NODES}/a", {"metadata": {"labels": labels}})
    assert answer.code == 200, answer.text


async def test_node_registers_itself_only(cluster: Server) -> None:
    await cluster.delete(f"{NODES}/a")
    assert (await ask(cluster, "POST", NODES, {"metadata": {"name": "c"}})).code == 403
    taken = {"metadata": {"name": "a", "labels": {"node-role.kubernetes.io/x": ""}}}
    assert (await ask(cluster, "POST", NODES, taken)).code == 403
    assert (await ask(cluster, "POST", NODES, {"metadata": {"name": "a"}})).code == 201
    assert (await ask(cluster, "DELETE", f"{NODES}/a")).code == 403


async def test_node_writes_its_own_lease_only(cluster: Server) -> None:
    assert (await ask(cluster, "POST", LEASES, {"metadata": {"name": "a"}})).code == 201
    assert (await ask(cluster, "POST", LEASES, {"metadata": {"name": "b"}})).code == 403
    assert (await ask(cluster, "PATCH", f"{LEASES}/a", {"metadata": {}})).code == 200
    assert (await ask(cluster, "GET", f"{LEASES}/b")).code == 403


async def test_node_gets_tokens_bound_to_its_pods_only(cluster: Server) -> None:
    found = {name: (await cluster.get(f"{PODS}/{name}")).body for name in ("a", "b")}

    async def token(account: str, name: str, **bound: Any) -> int:
        reference = {"apiVersion": "v1", "kind": "Pod", "name": name, **bound}
        body = {"spec": {"boundObjectRef": reference if name else None}}
        return (await ask(cluster, "POST", f"{ACCOUNTS}/{account}/token", body)).code

    uid = found["a"]["metadata"]["uid"]
    assert await token("of-a", "a", uid=uid) == 201
    assert await token("of-a", "a") == 403
    assert await token("of-a", "") == 403
    assert await token("of-a", "a", uid="other") == 403
    assert await token("of-a", "b", uid=found["b"]["metadata"]["uid"]) == 403
    assert await token("of-b", "a", uid=uid) == 403
    assert await token("default", "a", uid=uid) == 403


async def test_requests_are_read_back_by_who_made_them(cluster: Server) -> None:
    spec = {
        "request": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K",
        "signerName": "kubernetes.io/kubelet-serving",
        "usages": ["server auth"],
        "username": "system:node:b",
        "groups": ["system:masters"],
    }
    made = await ask(cluster, "POST", REQUESTS, {"metadata": {"name": "mine"}, "spec": spec})
    assert made.code == 201, made.text
    assert made.body["spec"]["username"] == A.name
    assert made.body["spec"]["groups"] == list(A.groups)
    assert (await ask(cluster, "GET", f"{REQUESTS}/mine")).code == 200
    other = User("system:node:b", A.groups)
    assert (await cluster.ask("GET", f"{REQUESTS}/mine", user=other)).code == 403
    conditions = {"status": {"conditions": [{"type": "Approved", "status": "True"}]}}
    for part in ("", "/approval", "/status"):
        assert (await ask(cluster, "PATCH", f"{REQUESTS}/mine{part}", conditions)).code == 403


async def test_machine_that_joins_may_only_ask_for_a_certificate(cluster: Server) -> None:
    user = User("system:bootstrap:abcdef", ("system:bootstrappers", "system:authenticated"))
    for path in (PODS, NODES, f"{CORE}/secrets/of-a", REQUESTS, f"{REQUESTS}/other"):
        assert (await cluster.ask("GET", path, user=user)).code == 403
    spec = {"request": "", "signerName": "a.b/c", "usages": ["any"]}
    answer = await cluster.ask("POST", REQUESTS, {"spec": spec}, user=user)
    assert answer.code == 422  # it may make one, and this is none


async def test_revoked_node_may_do_nothing(cluster: Server) -> None:
    """Also once its Node is deleted: the list outlives it, and no node may change the list."""
    lists = "/api/v1/namespaces/kube-system/configmaps"
    body = {"metadata": {"name": "revoked-nodes"}, "data": {"a": "stolen"}}
    assert (await ask(cluster, "POST", lists, body)).code == 403
    await cluster.made(lists, body)
    assert (
        await ask(cluster, "PATCH", f"{lists}/revoked-nodes", {"data": {"a": None}})
    ).code == 403
    assert (await cluster.ask("DELETE", f"{NODES}/a")).code == 200
    spec = {"request": "", "signerName": "a.b/c", "usages": ["any"]}
    for method, path, sent in (
        ("GET", f"{PODS}/a", None),
        ("GET", f"{CORE}/secrets/of-a", None),
        ("GET", f"{CORE}/services", None),
        ("GET", "/api/v1", None),
        ("POST", NODES, {"metadata": {"name": "a"}}),
        ("POST", REQUESTS, {"spec": spec}),
    ):
        answer = await ask(cluster, method, path, sent)
        assert answer.code == 403, (method, path)
        assert "node a is revoked (stolen): ConfigMap kube-system/revoked-nodes" in answer.message
    other = User("system:node:b", A.groups)
    assert (await cluster.ask("GET", f"{PODS}/b", user=other)).code == 200
    for path, query, code in (
        (lists, {"fieldSelector": "metadata.name=revoked-nodes"}, 200),
        (f"{lists}/revoked-nodes", {}, 200),
        (lists, {}, 403),
        (f"{lists}/other", {}, 403),
        (f"{lists.replace('kube-system', 'default')}/revoked-nodes", {}, 403),
    ):
        answer = await cluster.ask("GET", path, query=query, user=other)
        assert answer.code == code, path
    await cluster.patch(f"{lists}/revoked-nodes", {"data": {"a": None}})
    assert (await ask(cluster, "GET", f"{CORE}/services")).code == 200


async def test_everyone_reads_the_authority_and_nothing_near_it(cluster: Server) -> None:
    application = Server(
        clock=cluster.application.registry.clock,
        rng=cluster.application.registry._rng,
        log=cluster.application._log,
        ca_pem="PEM",
    )
    await application.application.bootstrap()
    await application.application.publish("127.0.0.1", 6443)
    public = "/api/v1/namespaces/kube-public/configmaps"
    answer = await application.ask("GET", f"{public}/cluster-info", user=ANONYMOUS)
    info = json.loads(answer.body["data"]["kubeconfig"])
    assert info["clusters"][0]["cluster"]["certificate-authority-data"] == "UEVN"
    for path in (public, f"{public}/kube-root-ca.crt", f"{CORE}/configmaps/kube-root-ca.crt"):
        assert (await application.ask("GET", path, user=ANONYMOUS)).code == 403
