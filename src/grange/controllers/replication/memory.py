"""What a process remembers of its controllers from one pass to the next.

None of it must not be lost: the next owner starts without, and is patient instead.
"""

from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import ObjectKey
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.controllers.replication.config import ReplicationConfig
from grange.controllers.replication.echoes import Echoes
from grange.controllers.replication.placing import Places
from grange.controllers.replication.replacements import Replacements
from grange.controllers.replication.transfers import Transfers
from grange.controllers.shared.audit_failures import Patience
from grange.controllers.shared.availability import Readiness
from grange.reconcile.expectations import Expectations


class Memory:
    """Passes and news share it.

    Args:
        config: how patient.
        clock: for patience.
        log: what happened.

    Attributes:
        expectations: what each controller waits to see in the cache.
        echoes: versions of controllers that the cache has yet to show.
        readiness: how long pods have been ready.
        replacements: how often pods finished lately.
        transfers: takes node transfers further; remembers nothing itself.
        unrecorded: when to record again what the server refused.
        kept_by_budget: controllers, by uid, that wait for a PodDisruptionBudget.
        eligible: the nodes that the last pass acted on (see ``placing``), by the controller's uid.
    """

    def __init__(self, config: ReplicationConfig, *, clock: Clock, log: Logger) -> None:
        self.expectations = Expectations(clock)
        self.echoes = Echoes(clock)
        self.readiness = Readiness(clock)
        self.replacements = Replacements(config.replacement, config.replacement_reset_s)
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
        self.echoes.forget(uid)
        self.unrecorded.forget(uid)
        self.eligible.pop(uid, None)
