"""A session of the command line in a small world, for what verbs do once they are connected."""

import asyncio
from pathlib import Path

from tests.unit.controllers.world import World

from grange.cli.session import Session
from grange.cli.surroundings import Surroundings


def session(there: World) -> Session:
    """To the world's server, in its namespace ``default``; nobody is at a terminal."""
    around = Surroundings(
        clock=there.clock,
        rng=there.rng,
        log=there.log,
        kubeconfig=(Path("none"),),
        interactive=False,
        color=False,
        width=80,
        run=asyncio.run,
    )
    return Session(there.client, "default", around)
