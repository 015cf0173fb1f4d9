"""Credentials of providers are Secrets of one namespace."""

import pytest

from grange.api.kinds import SECRET
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.controller.provider_secrets import secret_reader
from grange.machines.providers.provider import MisconfiguredError
from grange.sim.api_fixture import ApiFixture, opened


async def test_only_secrets_of_one_namespace_are_read(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        for namespace, name in (("kube-system", "hosts"), ("default", "others")):
            document = {"metadata": {"name": name}, "stringData": {"ssh-privatekey": "key"}}
            await world.client.create(SECRET, document, namespace)
        read = secret_reader(world.client)
        assert await read("hosts") == {"ssh-privatekey": b"key"}
        with pytest.raises(MisconfiguredError, match="kube-system/others: there is none"):
            await read("others")
