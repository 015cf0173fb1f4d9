"""Connections for programs that import Grange: a client, and the tools of a controller."""

import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

from grange.app.locations import kubeconfig_paths, service_account
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.metrics import registry
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.client.client import Client
from grange.reconcile.deps import Deps
from grange.reconcile.informer import InformerFactory


@asynccontextmanager
async def connect(kubeconfig: str | Path | None = None, context: str = "") -> AsyncIterator[Client]:
    """Connect to a cluster as kubectl does, and close the connection at the end of the block.

    >>> async with connect() as client:
    ...     for pod in (await client.list(POD, "default")).items:
    ...         print(pod.metadata.name, pod.status.phase)

    Args:
        kubeconfig: a file; by default ``$KUBECONFIG``, then ``~/.kube/config``, then the service
            account of the pod that the program runs in.
        context: a context of the kubeconfig; by default the current one.

    Raises:
        KubeconfigError: no cluster is configured, or the configuration cannot be used.
    """
    from grange.client import kubeconfig as configuration
    from grange.client.transports.http_transport import HTTP

    if kubeconfig is not None:
        access = configuration.load((Path(kubeconfig),), context)
    else:
        paths = kubeconfig_paths(os.environ)
        access = configuration.find(paths, context, service_account(os.environ))
    transport = HTTP.from_access(access)
    try:
        yield Client(transport)
    finally:
        await transport.close()


async def run_controllers(
    client: Client, *factories: Callable[[Deps], Callable[[], Coroutine[object, object, None]]]
) -> None:
    """Run controllers, with the informers that they share, until cancelled.

    >>> async with connect() as client:
    ...     await run_controllers(client, lambda deps: Greeter(deps).run)

    Args:
        client: the connection to the cluster.
        factories: each makes a controller from its tools and returns its ``run``.

    Raises:
        Exception: the first one that a controller raises; the others are cancelled.
    """
    clock, rng, log = LoopClock(), Stream.from_system(), Logger("controllers")
    metrics = registry()
    informers = InformerFactory(
        client, clock=clock, rng=rng.fork("informers"), log=log, metrics=metrics
    )
    async with Nursery("controllers") as nursery:
        for number, factory in enumerate(factories):
            tools = Deps(client, informers, clock, rng.fork(f"controller {number}"), log, metrics)
            nursery.start(factory(tools)(), name=f"controller {number}")
        nursery.start(informers.run(), name="informers")
