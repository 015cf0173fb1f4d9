"""A session of the command line in a world, for what verbs do once they are connected."""

import asyncio
from pathlib import Path

from tests.support.controller_world import World

from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli.environment import Environment
from grange.cli.session import ApiSession
from grange.client.client import Client


def session(there: World) -> ApiSession:
    """To the small world's server."""
    return opened(there.client, clock=there.clock, rng=there.rng, log=there.log)


def opened(client: Client, *, clock: Clock, rng: Stream, log: Logger) -> ApiSession:
    """To a server, in its namespace ``default``; there is no terminal."""
    env = Environment(
        clock=clock,
        rng=rng,
        log=log,
        kubeconfig=(Path("none"),),
        interactive=False,
        color=False,
        width=80,
        run=asyncio.run,
    )
    return ApiSession(client, "default", env)
