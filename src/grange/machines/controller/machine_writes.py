"""What passes write: new records, events and fields of machines."""

from contextlib import suppress

import msgspec

from grange.api.kinds import MACHINE
from grange.api.kinds.machine import INSTANCE_FINALIZER, NODE_POOL_LABEL, Machine
from grange.api.kinds.nodepool import NodePool
from grange.api.machine_phases import MachineEvent
from grange.api.meta import Document
from grange.api.status import AlreadyExists, Conflict, NotFound
from grange.machines.controller.controller_context import NodeControllerContext
from grange.machines.controller.pool_template import CONFIG_ANNOTATION, config_text
from grange.machines.scaling_plan import MachineStart


class MachineWrites:
    """Writes at the version that the plan saw.

    Args:
        context: tools.
    """

    def __init__(self, context: NodeControllerContext) -> None:
        self._client, self._listers = context.client, context.listers
        self._updater, self._events = context.updater, context.events

    async def order(self, pool: NodePool, start: MachineStart) -> Machine | None:
        """Record a machine, which the executor launches; None where there is one of its name.

        Raises:
            ApiError: a request failed, and may have succeeded.
        """
        document: Document = {
            "metadata": {
                "name": start.name,
                "labels": {NODE_POOL_LABEL: pool.metadata.name},
                "annotations": {**start.annotations, CONFIG_ANNOTATION: config_text(pool)},
                "finalizers": [INSTANCE_FINALIZER],
            },
            "spec": msgspec.to_builtins(start.spec),
        }
        try:
            machine = await self._client.create(MACHINE, document)
        except AlreadyExists:
            # The next plan must see it, though the cache does not show it yet: it names another then.
            with suppress(NotFound):
                self._listers.wrote(await self._client.get(MACHINE, start.name))
            return None
        self._listers.wrote(machine)
        return machine

    async def move(
        self,
        machine: Machine,
        event: MachineEvent,
        reason: str,
        message: str,
        fields: Document | None = None,
    ) -> bool:
        """Write an event; whether the machine had changed meanwhile, so that nothing is written.

        Raises:
            ApiError: a request failed, and may have succeeded.
        """
        try:
            moved = await self._updater.move(
                machine, event, reason=reason, message=message, fields=fields
            )
        except (Conflict, NotFound):
            return True
        self._listers.wrote(moved)
        self._events.moved(machine, moved, reason, message)
        return False

    async def update(self, machine: Machine, fields: Document) -> bool:
        """Write fields; whether the machine had changed meanwhile, so that nothing is written.

        Raises:
            ApiError: a request failed, and may have succeeded.
        """
        try:
            self._listers.wrote(await self._updater.update(machine, fields))
        except (Conflict, NotFound):
            return True
        return False
