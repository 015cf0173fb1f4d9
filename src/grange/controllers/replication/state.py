"""What a process keeps of its controllers from one reconcile to the next.

All of it can be rebuilt: the next owner starts without it and waits longer instead.
"""

from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import ObjectKey
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.controllers.replication.config import ReplicationConfig
from grange.controllers.replication.node_eligibility import Places
from grange.controllers.replication.node_transfer_service import Transfers
from grange.controllers.replication.pod_backoff import PodBackoff
from grange.controllers.shared.audit_failures import Patience
from grange.controllers.shared.availability import Readiness
from grange.reconcile.expectations import Expectations
from grange.reconcile.write_tracker import WriteTracker


class State:
    """Shared by the reconciler and the event handlers.

    Args:
        config: how patient.
        clock: for patience.
        log: what happened.

    Attributes:
        expectations: what each controller waits to see in the cache.
        written: versions of controllers that the cache has yet to show.
        readiness: how long pods have been ready.
        replacements: how often pods finished lately.
        transfers: takes node transfers further; remembers nothing itself.
        unrecorded: when to record again what the server refused.
        kept_by_budget: controllers, by uid, that wait for a PodDisruptionBudget.
        eligible: the nodes that the last pass acted on (see ``node_eligibility``), by the controller's uid.
    """

    def __init__(self, config: ReplicationConfig, *, clock: Clock, log: Logger) -> None:
        self.expectations = Expectations(clock)
        self.written = WriteTracker(clock)
        self.readiness = Readiness(clock)
        self.replacements = PodBackoff(config.replacement, config.replacement_reset_s)
        self.transfers = Transfers(clock=clock, log=log)
        self.unrecorded = Patience(clock)
        self.eligible: dict[str, Places] = {}
        self.kept_by_budget: dict[str, ObjectKey] = {}

    def wait_for_budget(self, controller: ReplicationController, *, waits: bool) -> None:
        """Whether a PodDisruptionBudget keeps a pod that the controller would take."""
        if waits:
            self.kept_by_budget[controller.metadata.uid] = controller.key
        else:
            self.kept_by_budget.pop(controller.metadata.uid, None)

    def forget(self, uid: str) -> None:
        """The controller is gone."""
        self.kept_by_budget.pop(uid, None)
        self.expectations.forget(uid)
        self.replacements.forget(uid)
        self.written.forget(uid)
        self.unrecorded.forget(uid)
        self.eligible.pop(uid, None)
