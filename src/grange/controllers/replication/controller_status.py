"""Writes the status of ReplicationControllers, under compare-and-set."""

from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import msgspec

from grange.api import conditions
from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import OutboxEntry
from grange.api.meta import Condition, Document
from grange.api.status import Conflict, NotFound
from grange.base.clock import Clock
from grange.base.metrics import Counter
from grange.client.client import Client
from grange.controllers.replication import status_conditions
from grange.controllers.shared.event_reasons import Reason
from grange.reconcile.controller import Terminal
from grange.reconcile.recorder import WARNING, Recorder
from grange.reconcile.write_tracker import WriteTracker


class ControllerStatusWriter:
    """Writes status, and reports what became of it.

    Args:
        client: to the API.
        written: remembers the versions that were written.
        recorder: records events for users.
        clock: of condition timestamps.
        skips: counts reasons for which work is left undone.
    """

    def __init__(
        self,
        client: Client,
        written: WriteTracker,
        recorder: Recorder,
        *,
        clock: Clock,
        skips: Counter,
    ) -> None:
        self._client = client
        self._written = written
        self._recorder = recorder
        self._clock = clock
        self._skips = skips

    async def refuse(self, controller: ReplicationController, error: Exception) -> NoReturn:
        """Write why the spec cannot be acted on.

        Raises:
            Terminal: always.
        """
        self._recorder.event(
            controller, WARNING, Reason.INVALID, str(error), kind=REPLICATIONCONTROLLER
        )
        wanted = status_conditions.refused(controller, str(error), self._clock.now())
        with suppress(Conflict, NotFound):  # it changed meanwhile: there is another pass
            if wanted != controller.status:
                await self.patch(controller, status_conditions.patch_of(controller, wanted))
                self._count_skips(controller, wanted.conditions)
        raise Terminal(f"{controller.key}: {error}") from error

    async def write(
        self, outcome: status_conditions.Outcome, outbox: Sequence[OutboxEntry], audited: str
    ) -> bool:
        """Write the status if it changed; False if the controller changed meanwhile."""
        controller = outcome.controller
        wanted = msgspec.structs.replace(
            status_conditions.status_of(outcome, self._clock.now()),
            outbox=tuple(outbox),
            pending_deletions=outcome.pending,
            audited=audited,
        )
        if wanted == controller.status:
            return True
        try:
            await self.patch(controller, status_conditions.patch_of(controller, wanted))
        except NotFound:
            return True
        except Conflict:
            return False
        self._count_skips(controller, wanted.conditions)
        self._report_shortage(controller, wanted.conditions)
        return True

    async def patch(
        self, controller: ReplicationController, patch: Document
    ) -> ReplicationController:
        """Patch the status; the versions that the listers have yet to show are remembered."""
        meta = controller.metadata
        written = await self._client.patch(
            REPLICATIONCONTROLLER, meta.name, meta.namespace, patch=patch, subresource="status"
        )
        self._written.wrote(written)
        return written

    def _count_skips(self, controller: ReplicationController, said: Sequence[Condition]) -> None:
        for reason in status_conditions.skips(controller.status.conditions, said):
            self._skips.labels(reason).inc()

    def _report_shortage(
        self, controller: ReplicationController, now_said: Sequence[Condition]
    ) -> None:
        said = conditions.find(controller.status.conditions, "InsufficientNodes")
        short = conditions.find(now_said, "InsufficientNodes")
        if short is None or short.status != "True":
            return
        # How many nodes there are for each reason changes all the time.
        before = said.message.partition(":")[0] if said is not None else ""
        news = short.message.partition(":")[0] != before
        if said is None or news or said.status != "True":
            self._recorder.event(
                controller,
                WARNING,
                Reason.INSUFFICIENT_NODES,
                short.message,
                kind=REPLICATIONCONTROLLER,
            )
