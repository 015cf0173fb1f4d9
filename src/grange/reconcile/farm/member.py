"""A member: one session, and the farms that it takes part in."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from grange.alerts.alerts import Alerts, AlertSink
from grange.alerts.sinks import LogSink
from grange.api.farm_protocol import RESUME_ANNOTATION, RESUME_CONFIGMAP
from grange.api.kinds import CONFIGMAP, LEASE
from grange.api.kinds.configmap import ConfigMap
from grange.api.meta import Document, Resource
from grange.api.scheme import KindInfo
from grange.base.errors import GrangeError
from grange.base.tasks import Nursery
from grange.reconcile.deps import Deps
from grange.reconcile.farm.config import FarmConfig
from grange.reconcile.farm.deletion_guard import DeletionGuard, DeletionGuardConfig, RequiredObjects
from grange.reconcile.farm.farm import Farm, Reconcile
from grange.reconcile.farm.member_session import SessionKeeper
from grange.reconcile.farm.members import Members

R = TypeVar("R", bound=Resource)


_REPORTED = 20  # alerts about objects on a Lease; the newest
_FARM = "farm/"  # what alerts about a farm begin with


class DuplicateFarm(GrangeError):
    """A member takes part in a farm once."""


class Member:
    """One process's part in the farms of a group.

    ::

        member = Member(deps, FarmConfig(member="a"))
        farm = member.farm("replication", REPLICATIONCONTROLLER, reconcile=…)
        await member.run()

    Args:
        deps: the tools.
        config: settings.
        alert_sink: where alerts go; the log by default.

    Attributes:
        session: the member's session.
        members: its peers.
        alerts: the active alerts that this member reports.
    """

    def __init__(
        self, deps: Deps, config: FarmConfig, *, alert_sink: AlertSink | None = None
    ) -> None:
        self._deps = deps
        self._config = config
        self.alerts = Alerts(alert_sink or LogSink(deps.log), changed=self._request_renewal)
        self._farms: dict[str, Farm[Resource]] = {}
        self.session = SessionKeeper(
            deps.client,
            config,
            farms=self._served,
            report=self._report,
            clock=deps.clock,
            rng=deps.rng.fork(f"farm.{config.member}"),
            log=deps.log,
            metrics=deps.metrics,
        )
        informer = deps.informers.informer(LEASE, **Members.lease_selection(config))
        self.members = Members(deps.client, informer, config, clock=deps.clock, log=deps.log)
        self._resumes = deps.informers.informer(
            CONFIGMAP, namespace=config.namespace, fields=f"metadata.name={RESUME_CONFIGMAP}"
        )
        self._resumed = ""
        self._resumes.add_handler(self._word, lambda _, new: self._word(new))

    def farm(  # noqa: PLR0913  what is shared, by whom, and what is done with it
        self,
        name: str,
        kind: KindInfo[R],
        *,
        selector: str = "",
        namespace: str = "",
        labels: str = "",
        reconcile: Reconcile | None = None,
        workers: int | None = None,
        weight: Callable[[R], int] | None = None,
        deletion_guard: DeletionGuardConfig | None = None,
        population: Callable[[], int] = lambda: 0,
        owned: Callable[[], int | None] | None = None,
        required_objects: RequiredObjects | None = None,
    ) -> Farm[R]:
        """Take part in a farm; before ``run``.

        Args:
            name: of the farm.
            kind: of its objects.
            selector: which of them this member wants, by their labels; empty means all.
            namespace: the objects of the farm are in this namespace; empty means any.
            labels: the objects of the farm have these; what is ``selector`` for all members alike.
            reconcile: run for each object that is ours; None where passes run elsewhere, through
                ``Farm.guard``. Its writes must go through ``Farm.client``.
            workers: how many of these passes at once; the member's setting by default.
            weight: what an object asks for, for the deletion guard.
            deletion_guard: what triggers the guard.
            population: how many objects there are that passes might delete.
            owned: how many live ones were made for the farm's objects; None while that is not
                known; the population by default.
            required_objects: what lives without what it needs, for the deletion guard's first look.

        Raises:
            DuplicateFarm: it does already.
            SelectorError: the selector cannot be read.
        """
        if name in self._farms:
            raise DuplicateFarm(f"there is a farm {name!r} in this member already")
        farm: Farm[R] = Farm(
            name,
            deps=self._deps,
            config=self._config,
            keeper=self.session,
            members=self.members,
            informer=self._deps.informers.informer(kind, namespace=namespace, labels=labels),
            selector=selector,
            reconcile=reconcile,
            workers=workers,
            weight=weight,
            deletion_guard=DeletionGuard(
                f"{_FARM}{name}",
                self.alerts,
                deletion_guard,
                population=population,
                owned=owned,
                required_objects=required_objects,
            ),
        )
        self._farms[name] = farm  # type: ignore[assignment]  # read back for what all have
        return farm

    async def run(self) -> None:
        """Take part until cancelled; then end all passes, and give the session back."""
        async with Nursery(f"member {self._config.member}") as nursery:
            nursery.start(self.session.run(), name="session")
            nursery.start(self.members.run(), name="members")
            # The session outlives the farms: they end inside it.
            async with Nursery("farms") as farms:
                for farm in self._farms.values():
                    farms.start(farm.run(), name=f"farm {farm.name}")

    def resume(self) -> None:
        """An operator confirms the present state, here: deletions go on."""
        for farm in self._farms.values():
            farm.resume()

    def _served(self) -> Mapping[str, str]:
        return {name: farm.selector for name, farm in self._farms.items()}

    def _request_renewal(self) -> None:
        self.session.request_renewal()

    def _report(self) -> Document:
        """The report of this member: what it owns, and its alerts, newest last."""
        active = self.alerts.active()
        farms = [alert for alert in active if alert.about.startswith(_FARM)]
        objects = [alert for alert in active if not alert.about.startswith(_FARM)]
        return {
            "owns": {name: len(farm.held()) for name, farm in self._farms.items()},
            "alerts": msgspec.to_builtins([*farms, *objects[-_REPORTED:]]),
        }

    def _word(self, configmap: ConfigMap) -> None:
        """An operator's word for all members: any new value; what was there before we were is old."""
        requested = configmap.metadata.annotations.get(RESUME_ANNOTATION, "")
        if requested and requested != self._resumed and self._resumes.has_synced:
            self.resume()
        self._resumed = requested
