"""Service accounts: what namespaces and pods have of them, and whom their tokens stand for."""

import base64
import json
from typing import Any

import pytest
from tests.unit.apiserver.server import PODS, Answer, Server, pod

from grange.api.http import ANONYMOUS, Request
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

CORE = "/api/v1/namespaces"
ACCOUNTS = f"{CORE}/default/serviceaccounts"
MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


@pytest.fixture
async def server(clock: Clock, rng: Stream, log: Logger) -> Server:
    made = Server(clock=clock, rng=rng, log=log, ca_pem="PEM")
    await made.application.bootstrap()
    return made


async def token_of(server: Server, account: str = "default", **spec: Any) -> str:
    answer = await server.create(f"{ACCOUNTS}/{account}/token", {"spec": spec})
    assert answer.code == 201, answer.text
    return str(answer.body["status"]["token"])


async def ask_as(server: Server, token: str, path: str = "/api", method: str = "GET") -> Answer:
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    user = server.application.accounts.authenticate(headers)
    request = Request(method, path, {}, headers, b"{}" if method == "POST" else b"")
    request.user = user or ANONYMOUS
    return Answer(await server.application.handle(request))


def payload(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


# --- namespaces --------------------------------------------------------------------------------


@pytest.mark.parametrize("accept", ["application/json", TABLE])
async def test_every_namespace_has_an_account_and_the_ca(server: Server, accept: str) -> None:
    await server.ask("POST", CORE, {"metadata": {"name": "team"}}, accept=accept)
    for namespace in ("default", "kube-system", "team"):
        assert (await server.get(f"{CORE}/{namespace}/serviceaccounts/default")).code == 200
        settings = await server.get(f"{CORE}/{namespace}/configmaps/kube-root-ca.crt")
        assert "ca.crt" in settings.body["data"]


async def test_deleted_account_is_made_again(server: Server) -> None:
    before = (await server.get(f"{ACCOUNTS}/default")).body["metadata"]["uid"]
    deleted = await server.delete(f"{ACCOUNTS}/default")
    assert (deleted.code, deleted.body["kind"]) == (200, "ServiceAccount")
    assert (await server.get(f"{ACCOUNTS}/default")).body["metadata"]["uid"] != before
    await server.delete(f"{CORE}/default/configmaps")
    assert (await server.get(f"{CORE}/default/configmaps/kube-root-ca.crt")).code == 200


async def test_namespace_that_is_going_is_left_alone(server: Server) -> None:
    await server.made(CORE, {"metadata": {"name": "team"}})
    await server.delete(f"{CORE}/team")
    assert (await server.delete(f"{CORE}/team/serviceaccounts/default")).code == 200
    assert (await server.get(f"{CORE}/team/serviceaccounts")).body["items"] == []


async def test_server_has_a_service_with_endpoints(server: Server) -> None:
    service: dict[str, Any] = {}
    for port in (6443, 6444):  # started again on another port
        await server.application.publish("127.0.0.1", port)
        service = (await server.get(f"{CORE}/default/services/kubernetes")).body
        [door] = service["spec"]["ports"]
        assert (door["port"], door["targetPort"]) == (443, port)
        [subset] = (await server.get(f"{CORE}/default/endpoints/kubernetes")).body["subsets"]
        assert subset["addresses"] == [{"ip": "127.0.0.1"}]
        assert [item["port"] for item in subset["ports"]] == [port]
        path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
        part = (await server.get(path)).body
        assert (part["addressType"], part["ports"][0]["port"]) == ("IPv4", port)
    assert service["spec"]["clusterIP"]
    await server.delete(f"{CORE}/default/services/kubernetes")
    assert (await server.get(f"{CORE}/default/services/kubernetes")).code == 200


# --- pods --------------------------------------------------------------------------------------


async def test_pod_mounts_a_token(server: Server) -> None:
    made = await server.made(PODS, pod(initContainers=[{"name": "a", "command": ["x"]}]))
    spec = made["spec"]
    [volume] = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    assert [next(iter(source)) for source in volume["projected"]["sources"]] == [
        "serviceAccountToken",
        "configMap",
        "downwardAPI",
    ]
    mount = {"name": volume["name"], "readOnly": True, "mountPath": MOUNT}
    for container in (*spec["containers"], *spec["initContainers"]):
        assert container["volumeMounts"] == [mount]
    assert spec["serviceAccountName"] == "default"


async def test_stored_pod_can_be_created_again(server: Server) -> None:
    made = await server.made(PODS, pod())
    again = {"metadata": {"name": "again"}, "spec": made["spec"]}
    spec = (await server.made(PODS, again))["spec"]
    assert (spec["volumes"], spec["containers"]) == (
        made["spec"]["volumes"],
        made["spec"]["containers"],
    )


async def test_pod_or_account_may_decline_the_token(server: Server) -> None:
    await server.made(
        ACCOUNTS, {"metadata": {"name": "quiet"}, "automountServiceAccountToken": False}
    )
    for spec, mounted in (
        ({"automountServiceAccountToken": False}, False),
        ({"serviceAccountName": "quiet"}, False),
        ({"serviceAccount": "quiet"}, False),
        ({"serviceAccountName": "quiet", "automountServiceAccountToken": True}, True),
    ):
        document = pod(**spec)
        del document["metadata"]["name"]
        document["metadata"]["generateName"] = "p-"
        assert ("volumes" in (await server.made(PODS, document))["spec"]) is mounted


async def test_container_keeps_its_own_mount(server: Server) -> None:
    document = pod(volumes=[{"name": "mine", "emptyDir": {}}])
    mine = {"name": "mine", "mountPath": MOUNT}
    document["spec"]["containers"][0]["volumeMounts"] = [mine]
    spec = (await server.made(PODS, document))["spec"]
    assert [volume["name"] for volume in spec["volumes"]] == ["mine"]
    assert spec["containers"][0]["volumeMounts"] == [mine]


async def test_account_of_a_pod_must_be_there(server: Server) -> None:
    answer = await server.create(PODS, pod(serviceAccountName="absent"))
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert 'serviceaccount "absent" not found' in answer.message
    pulls = {"metadata": {"name": "puller"}, "imagePullSecrets": [{"name": "registry"}]}
    await server.made(ACCOUNTS, pulls)
    spec = (await server.made(PODS, pod(serviceAccountName="puller")))["spec"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": "x"},
        {"containers": [7], "volumes": 7},
        {"volumes": [{"name": 7, "projected": {}}], "containers": [{"volumeMounts": 7}]},
        {"serviceAccountName": 7},
    ],
)
async def test_pod_of_wrong_types_is_refused_by_its_schema(
    server: Server, spec: dict[str, Any]
) -> None:
    answer = await server.create(PODS, {"metadata": {"name": "a"}, "spec": spec})
    assert answer.code == 422


# --- tokens ------------------------------------------------------------------------------------


async def test_token_stands_for_its_account(server: Server) -> None:
    token = await token_of(server)
    body = (
        await ask_as(server, token, "/apis/authentication.k8s.io/v1/selfsubjectreviews", "POST")
    ).body
    assert body["status"]["userInfo"] == {
        "username": "system:serviceaccount:default:default",
        "groups": [
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated",
        ],
    }
    assert payload(token)["sub"] == "system:serviceaccount:default:default"
    assert (await ask_as(server, token)).code == 200


async def test_account_may_discover_and_nothing_more(server: Server) -> None:
    token = await token_of(server)
    for path in (PODS, f"{CORE}/default/secrets", "/metrics", f"{ACCOUNTS}/default/token"):
        answer = await ask_as(server, token, path)
        assert (answer.code, answer.reason) == (403, "Forbidden")


async def test_token_ends_with_its_time(server: Server, clock: Clock) -> None:
    token = await token_of(server, expirationSeconds=600)
    await clock.sleep(599)
    assert (await ask_as(server, token)).code == 200
    await clock.sleep(1)
    assert (await ask_as(server, token)).code == 403


async def test_token_ends_with_its_account(server: Server) -> None:
    await server.made(ACCOUNTS, {"metadata": {"name": "robot"}})
    token = await token_of(server, "robot")
    assert (await ask_as(server, token)).code == 200
    await server.delete(f"{ACCOUNTS}/robot")
    assert (await ask_as(server, token)).code == 403
    await server.made(ACCOUNTS, {"metadata": {"name": "robot"}})
    assert (await ask_as(server, token)).code == 403


async def test_token_of_a_pod_ends_with_the_pod(server: Server, clock: Clock) -> None:
    made = await server.made(PODS, pod())
    bound = {"kind": "Pod", "apiVersion": "v1", "name": made["metadata"]["name"]}
    bound["uid"] = made["metadata"]["uid"]
    token = await token_of(server, expirationSeconds=3607, boundObjectRef=bound)
    await clock.sleep(86_400)  # mounted tokens outlive the hour that they ask for
    assert (await ask_as(server, token)).code == 200
    await server.delete(f"{PODS}/{bound['name']}")
    assert (await ask_as(server, token)).code == 403
    for wrong, code in (({**bound, "name": "b"}, 404), ({**bound, "kind": "Node"}, 400)):
        answer = await server.create(
            f"{ACCOUNTS}/default/token", {"spec": {"boundObjectRef": wrong}}
        )
        assert answer.code == code


async def test_token_for_others_is_not_for_this_server(server: Server) -> None:
    token = await token_of(server, audiences=["vault"])
    assert payload(token)["aud"] == ["vault"]
    assert (await ask_as(server, token)).code == 403


@pytest.mark.parametrize(
    "change",
    [
        lambda token: token[:-2],
        lambda token: f"{token.rpartition('.')[0]}.",
        lambda token: token.rpartition(".")[0],
        lambda token: f"e30.{token.partition('.')[2]}",
        lambda token: f".{token.rpartition('.')[2]}",
        lambda token: token + "ü",
        lambda token: "a" * 9_000,
    ],
)
async def test_changed_token_is_nones(server: Server, change: Any) -> None:
    headers = {"authorization": f"Bearer {change(await token_of(server))}"}
    assert server.application.accounts.authenticate(headers) is None


async def test_token_of_another_server_is_nones(
    server: Server, clock: Clock, rng: Stream, log: Logger
) -> None:
    other = Server(clock=clock, rng=rng.fork("other"), log=log, store=server.store)
    headers = {"authorization": f"Bearer {await token_of(server)}"}
    assert other.application.accounts.authenticate(headers) is None
    assert server.application.accounts.authenticate(headers) is not None


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"kind": "Pod"}, 400),
        ({"spec": {"expirationSeconds": 5}}, 422),
        ({"spec": {"expirationSeconds": 1 << 33}}, 422),
        ({"spec": {"audiences": "x"}}, 422),
    ],
)
async def test_bad_token_request_is_refused(
    server: Server, body: dict[str, Any], code: int
) -> None:
    assert (await server.create(f"{ACCOUNTS}/default/token", body)).code == code
