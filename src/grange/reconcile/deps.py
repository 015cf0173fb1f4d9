"""What every controller, scheduler and agent is made from."""

from dataclasses import dataclass

from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import CollectorRegistry
from grange.base.rng import Stream
from grange.client.client import Client
from grange.reconcile.informer import InformerFactory


@dataclass(frozen=True, slots=True)
class Deps:
    """The tools that are handed in.

    Attributes:
        client: the one way to the API.
        informers: shared copies of collections.
        clock: time.
        rng: the role's stream; fork it by name.
        log: the role's logger; bind facts at the edge of a loop.
        metrics: where counts go.
    """

    client: Client
    informers: InformerFactory
    clock: Clock
    rng: Stream
    log: Logger
    metrics: CollectorRegistry
