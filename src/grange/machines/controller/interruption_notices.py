"""Notes on machines that their provider takes them away, as soon as it announces that."""

from collections.abc import Callable

from grange.api.kinds import MACHINE
from grange.api.kinds.machine import INTERRUPTED_CONDITION
from grange.api.meta import preconditions
from grange.api.status import ApiError, Conflict, NotFound
from grange.machines.controller.controller_context import NodeControllerContext
from grange.machines.controller.status_updater import condition_fields
from grange.machines.disruption.disruption_progress import DISRUPTION_ANNOTATION
from grange.machines.disruption.interruption_response import respond
from grange.machines.providers.provider import Interruption
from grange.machines.scaling.capacity_memory import CapacityMemory


class InterruptionNotices:
    """Writes what notices mean; the disruption of machines reads it there, restarts included.

    Args:
        context: tools.
        wake: called when a machine is to be disrupted.
    """

    def __init__(self, context: NodeControllerContext, wake: Callable[[], None]) -> None:
        self._client, self._listers, self._events = context.client, context.listers, context.events
        self._clock, self._log = context.clock, context.log
        self._updater = context.updater
        self._retry_s, self._wake = context.config.retry_s, wake

    async def note(self, name: str, notice: Interruption, capacity: CapacityMemory) -> None:
        """Write a notice to a machine. Returns when that is done: only then the provider forgets it."""
        came = self._clock.now()
        while True:
            try:
                machine = await self._client.get(MACHINE, name)
                record = respond(notice, machine, capacity, came)
                if record is None:
                    return
                # First: a notice that is noted is not looked at again.
                shown = condition_fields(
                    machine, {INTERRUPTED_CONDITION: "True"}, "Notice", record.message, came
                )
                machine = await self._updater.update(machine, shown)
                noted = {DISRUPTION_ANNOTATION: record.text()}
                patch = {"metadata": {**preconditions(machine.metadata), "annotations": noted}}
                self._listers.wrote(await self._client.patch(MACHINE, name, patch=patch))
            except NotFound:
                return
            except Conflict:
                continue  # read again
            except ApiError as error:
                self._log.warning("notice not written", machine=name, error=error)
                await self._clock.sleep(self._retry_s)
            else:
                self._events.interrupted(machine, record.message)
                self._wake()
                return
