"""What a pod gets of its service account: a token, a kubeconfig, and where they are."""

import base64
import json
from typing import Any

import pytest
from tests.support.agent_world import World, world
from tests.unit.agent.builders import NODE, container, document, pod

from grange.agent import service_account, volumes
from grange.agent.container_env import EnvContext
from grange.agent.container_runtime import Mount, VolumePlan
from grange.agent.references import Fetcher, Sources
from grange.api.kinds import CONFIGMAP, POD, SERVICEACCOUNT
from grange.api.pod_fields import TOKEN_MOUNT
from grange.api.status import ApiError, ServiceUnavailable
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

VOLUME = {
    "name": "kube-api-access-token",
    "projected": {
        "defaultMode": 0o640,
        "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"configMap": {"name": "kube-root-ca.crt"}},
        ],
    },
}
MOUNT = {"name": VOLUME["name"], "mountPath": TOKEN_MOUNT}
FOUND = Sources(
    "default", {("ConfigMap", "kube-root-ca.crt"): {"ca.crt": b"PEM"}}, {("", 3607): "t.o.k"}
)


def planned(facts: EnvContext, *mounts: Any) -> VolumePlan:
    view = pod(container(volumeMounts=list(mounts)), volumes=[VOLUME])
    [made] = volumes.plan(view, FOUND, facts)
    return made


def test_token_and_kubeconfig_are_files_of_the_volume() -> None:
    facts = EnvContext(base=service_account.api_variables("127.0.0.1", 6443))
    made = {file.path: file for file in planned(facts, MOUNT).files}
    assert (made["token"].content, made["token"].mode) == (b"t.o.k", 0o640)
    config = json.loads(made["kubeconfig"].content)
    [cluster], [user] = config["clusters"], config["users"]
    assert cluster["cluster"] == {
        "server": "https://127.0.0.1:6443",
        "certificate-authority-data": base64.b64encode(b"PEM").decode(),
    }
    assert user["user"] == {"token": "t.o.k"}
    assert config["contexts"][0]["context"]["namespace"] == "default"
    assert made["kubeconfig"].mode == 0o640


def test_kubeconfig_is_for_the_known_place_alone() -> None:
    facts = EnvContext(base=service_account.api_variables("::1", 6443))
    elsewhere = {**MOUNT, "mountPath": "/tokens"}
    for plan in (planned(facts, elsewhere), planned(EnvContext(), MOUNT)):
        assert [file.path for file in plan.files] == ["token", "ca.crt"]
    [made] = [file for file in planned(facts, MOUNT).files if file.path == "kubeconfig"]
    assert b"https://[::1]:6443" in made.content


def test_variables_name_the_directory() -> None:
    paths = {"kube-api-access-token": "/v"}
    view = pod(container(volumeMounts=[MOUNT])).spec.containers[0]
    assert service_account.variables(view, paths) == {
        "GRANGE_SERVICE_ACCOUNT": "/v",
        "KUBECONFIG": "/v/kubeconfig",
    }
    assert service_account.variables(pod().spec.containers[0], paths) == {}


@pytest.mark.parametrize("path", ["/var/run", "/var/run/secrets/", f"{TOKEN_MOUNT}/more"])
def test_token_gives_way_to_a_mount_around_it(path: str) -> None:
    other = {"name": "mine", "mountPath": path}
    view = pod(
        container(volumeMounts=[MOUNT, other]), volumes=[VOLUME, {"name": "mine", "emptyDir": {}}]
    )
    assert volumes.mounts(view, view.spec.containers[0]) == (Mount("mine", path),)


async def test_pod_gets_a_token_of_its_account(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        await there.client.create(SERVICEACCOUNT, {"metadata": {"name": "robot"}}, "default")
        await there.create(document(serviceAccountName="robot"))
        await there.until_ready()
        view = await there.client.get(POD, "web", "default")
        found = await Fetcher(there.client, clock).fetch(view, view.spec.containers[0])
        [token] = found.tokens.values()
        user = there.application.accounts.authenticate({"authorization": f"Bearer {token}"})
        assert user is not None
        assert user.name == "system:serviceaccount:default:robot"
        environment = there.machine.environments[there.starts()[0]]
        assert environment["KUBECONFIG"].startswith(environment["GRANGE_SERVICE_ACCOUNT"])


async def test_missing_account_is_named_and_waited_for(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        account = {"metadata": {"name": "robot"}}
        await there.client.create(SERVICEACCOUNT, account, "default")
        unbound = document(serviceAccountName="robot")
        del unbound["spec"]["nodeName"]
        await there.create(unbound)
        await there.client.delete(SERVICEACCOUNT, "robot", "default")
        body = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": NODE}}
        await there.client.post(POD, "web", "default", "binding", body)
        await there.clock.sleep(1)
        waiting = (await there.main()).state.waiting
        assert waiting is not None
        assert waiting.reason == "CreateContainerConfigError"
        assert 'there is no ServiceAccount "robot"' in waiting.message
        await there.client.create(SERVICEACCOUNT, account, "default")
        await there.until_ready()


async def test_only_what_every_pod_has_is_remembered(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        settings = {"metadata": {"name": "cfg"}, "data": {"a": "1"}}
        await there.client.create(CONFIGMAP, settings, "default")
        source = [{"configMapRef": {"name": "cfg"}}]
        await there.create(document(container(), container("other", envFrom=source)))
        view = await there.client.get(POD, "web", "default")
        plain, other = view.spec.containers
        fetcher = Fetcher(there.new_client(), clock)
        before = await fetcher.fetch(view, plain)
        await fetcher.fetch(view, other)
        there.gate = lambda request: ServiceUnavailable("away")
        assert (await fetcher.fetch(view, plain)).tokens.keys() == before.tokens.keys()
        with pytest.raises(ApiError):
            await fetcher.fetch(view, other)
        fetcher.forget(view.metadata.uid)
        with pytest.raises(ApiError):
            await fetcher.fetch(view, plain)


# --- tokens that end while their pod runs ----------------------------------------------------------


def with_token(audience: str, seconds: int) -> dict[str, Any]:
    projection = {"path": "token", "audience": audience, "expirationSeconds": seconds}
    made = document(container(volumeMounts=[{"name": "vault", "mountPath": "/vault"}]))
    sources = [{"serviceAccountToken": projection}]
    made["spec"]["volumes"] = [{"name": "vault", "projected": {"sources": sources}}]
    return made


def token_of(there: World) -> str:
    [pod_made] = there.machine.pods.values()
    [plan] = [plan for plan in pod_made.setup.volumes if plan.name == "vault"]
    return plan.files[0].content.decode()


def end_of_token(there: World) -> float:
    payload = token_of(there).split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return float(claims["exp"]) - there.clock.now().timestamp()


async def test_token_of_an_audience_is_renewed(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        await there.create(with_token("vault", 600))
        await there.until_ready()
        first = token_of(there)
        await there.clock.sleep(470)
        assert token_of(there) == first
        await there.clock.sleep(20)
        assert token_of(there) != first
        for _ in range(20):
            await there.clock.sleep(470)
            assert end_of_token(there) > 0
        assert len(there.starts()) == 1


async def test_token_is_renewed_once_the_api_is_back(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await there.create(with_token("vault", 600))
        await there.until_ready()
        there.gate = lambda request: ServiceUnavailable("away")
        await there.clock.sleep(550)
        assert end_of_token(there) < 100
        there.gate = lambda request: None
        await there.clock.sleep(60)
        assert end_of_token(there) > 400


async def test_next_agent_renews_tokens_at_once(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        await there.create(with_token("vault", 600))
        await there.until_ready()
        await there.clock.sleep(300)
        there.crash_agent()
        there.start_agent()
        await there.clock.sleep(5)
        assert end_of_token(there) > 590


async def test_mounted_token_is_left_alone(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        await there.create(document())
        await there.until_ready()
        there.requests.clear()
        await there.clock.sleep(10_000)
        assert not [request for request in there.requests if request[1].endswith("/token")]
