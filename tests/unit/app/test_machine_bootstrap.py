"""What machines of pools are given to join: their own token for one use, and user data that have it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from grange.api import bootstrap_tokens
from grange.api.bootstrap_tokens import BootstrapToken
from grange.api.kinds import MACHINE, SECRET
from grange.api.kinds.machine import Machine
from grange.api.kinds.nodepool import NodePoolSpec, PoolTimeouts
from grange.app import controllers, local_machines
from grange.app.agent_packages import agent_package
from grange.app.machine_bootstrap import JoinBootstrap, token_ids
from grange.app.machine_role import bootstrap_elsewhere, join_bootstrap, url_elsewhere
from grange.app.settings import Settings
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.providers.provider import MisconfiguredError
from grange.sim.api_fixture import ApiFixture, opened

PIN = f"sha256:{'0' * 64}"
POOL = NodePoolSpec(provider="local", timeouts=PoolTimeouts(boot_seconds=120))


async def ordered(world: ApiFixture, name: str = "m") -> Machine:
    spec = {"pool": "p", "provider": "local"}
    return await world.client.create(MACHINE, {"metadata": {"name": name}, "spec": spec})


def bootstrap(world: ApiFixture) -> JoinBootstrap:
    return JoinBootstrap(world.new_client(), "https://10.0.0.1:6443", PIN, world.clock)


async def tokens(world: ApiFixture) -> list[BootstrapToken]:
    found = (await world.client.list(SECRET, bootstrap_tokens.NAMESPACE)).items
    return [token for token in map(bootstrap_tokens.read, found) if token is not None]


async def test_f54_each_machine_has_a_token_for_itself(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        made = bootstrap(world)
        for name in ("m", "n"):
            secrets = await made.prepare(await ordered(world, name), POOL)
            assert secrets.join_token in secrets.user_data
            assert "--taint grange.dev/not-initialized=true:NoSchedule" in secrets.user_data
            assert "grange.dev/node-pool" not in secrets.user_data
        found = await tokens(world)
        assert sorted((token.node, token.once) for token in found) == [("m", True), ("n", True)]
        assert len({token.secret for token in found}) == 2
        for token in found:
            assert token.expires is not None
            assert (token.expires - clock.now()).total_seconds() == pytest.approx(180.0, abs=1.0)


async def test_tokens_of_templates_are_good_for_other_clusters(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        text = "kubeadm join {{ grange.endpoint }} --token {{ grange.token }}"
        pool = NodePoolSpec(provider="local", bootstrap="UserData", user_data=text)
        secrets = await bootstrap(world).prepare(await ordered(world), pool)
        (token,) = await tokens(world)
        assert secrets.user_data == f"kubeadm join 10.0.0.1:6443 --token {secrets.join_token}"
        assert token.groups == tuple(
            f"system:bootstrappers:{tool}:default-node-token" for tool in ("k3s", "kubeadm")
        )
        await bootstrap(world).prepare(await ordered(world, "n"), POOL)
        assert [one.groups for one in await tokens(world) if one.node == "n"] == [()]


async def test_f55_a_token_goes_when_the_boot_is_over(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        machine = await ordered(world)
        await bootstrap(world).prepare(machine, POOL)
        await bootstrap(world).prepare(await ordered(world, "n"), POOL)
        await bootstrap(world).finish(machine)
        assert [token.node for token in await tokens(world)] == ["n"]


async def test_a_repeated_launch_has_the_same_token(clock: Clock, rng: Stream, log: Logger) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        machine = await ordered(world)
        first = await bootstrap(world).prepare(machine, POOL)
        assert await bootstrap(world).prepare(machine, POOL) == first
        assert len(await tokens(world)) == 1


async def test_a_token_of_another_machine_is_left_alone(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        machine = await ordered(world)
        taken = BootstrapToken(token_ids(machine)[0], "s" * 16, node="other")
        document = bootstrap_tokens.document(taken)
        await world.client.create(SECRET, document, bootstrap_tokens.NAMESPACE)
        secrets = await bootstrap(world).prepare(machine, POOL)
        assert secrets.join_token.startswith(token_ids(machine)[1])
        await bootstrap(world).finish(machine)
        assert [token.node for token in await tokens(world)] == ["other"]
        await bootstrap(world).finish(machine)


async def test_malformed_user_data_launch_nothing(clock: Clock, rng: Stream, log: Logger) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        pool = NodePoolSpec(provider="local", user_data="#cloud-config\nruncmd: [")
        with pytest.raises(MisconfiguredError, match=r"spec\.userData: is not YAML"):
            await bootstrap(world).prepare(await ordered(world), pool)


async def test_machines_install_the_package_of_the_settings(
    clock: Clock, rng: Stream, log: Logger, tmp_path: Path
) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        url = "https://h/{tag}/grange-{version}.whl"
        settings = Settings(data_dir=tmp_path, agent_version="1.2.0", agent_url=url)
        bootstrap = join_bootstrap(world.new_client(), settings, "https://h:1", PIN, clock)
        secrets = await bootstrap.prepare(await ordered(world), POOL)
        assert "grange @ https://h/v1.2.0/grange-1.2.0.whl" in secrets.user_data


async def test_machines_elsewhere_install_the_package_of_the_flags(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    words = ["--agent-version", "v1.2.0"]
    given = controllers.command.make_context("controllers", words).params
    package = agent_package(given["agent_version"], given["agent_url"])
    async with opened(ApiFixture(clock, rng, log)) as world:
        made = bootstrap_elsewhere(world.new_client(), "https://h:1", b"", clock, package)
        secrets = await made.prepare(await ordered(world), POOL)
        assert "grange==1.2.0" in secrets.user_data


def test_controllers_refuse_a_malformed_package() -> None:
    for words in (["--agent-version", "1 2"], ["--agent-url", "https://h/{version}.whl"]):
        done = CliRunner().invoke(controllers.command, words)
        assert done.exit_code == 2
        assert "--agent-version, --agent-url: agent" in done.output


def test_other_machines_reach_the_server_by_its_name(tmp_path: Path) -> None:
    url = "https://127.0.0.1:7443"
    assert url_elsewhere(Settings(data_dir=tmp_path), url) == url
    named = Settings(data_dir=tmp_path, tls_names=("api.lab", "10.0.0.1"))
    assert url_elsewhere(named, url) == "https://api.lab:7443"


def test_commands_of_local_machines_hold_no_token(tmp_path: Path) -> None:
    found = local_machines.provider_settings(
        Settings(data_dir=tmp_path), "https://127.0.0.1:1", PIN
    )
    assert not [word for word in found["command"] if "token" in word.lower()]
    assert not [word for word in found["cleanup"] if "token" in word.lower()]
    assert "--end-pods" in found["cleanup"]
