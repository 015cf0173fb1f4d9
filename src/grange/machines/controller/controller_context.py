"""What all parts of the node controller work with."""

from dataclasses import dataclass

from grange.base.clock import Clock
from grange.base.log import Logger
from grange.client.client import Client
from grange.machines.controller.machine_events import MachineEvents
from grange.machines.controller.machine_listers import MachineListers
from grange.machines.controller.metrics import MachineInstruments
from grange.machines.controller.node_controller_config import NodeControllerConfig
from grange.machines.controller.status_updater import StatusUpdater


@dataclass(frozen=True, slots=True)
class NodeControllerContext:
    """The tools that the parts share.

    Attributes:
        client: of the API server.
        listers: what is there.
        updater: writes statuses of machines.
        events: reports to people.
        config: intervals and limits.
        clock: time.
        log: the logger.
        metrics: counts.
    """

    client: Client
    listers: MachineListers
    updater: StatusUpdater
    events: MachineEvents
    config: NodeControllerConfig
    clock: Clock
    log: Logger
    metrics: MachineInstruments
