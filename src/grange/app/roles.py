"""The roles of a control plane: the services that run with the API server.

Each role is a service with ``async def run()``. Modules are imported when their role is chosen, so
that the API is served before numpy is loaded.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Protocol

from grange.api.explanation import Explanation
from grange.api.kinds.pod import Pod
from grange.app.explanations import Explanations
from grange.app.runnable import Runnable
from grange.app.settings import Settings
from grange.reconcile.deps import Deps
from grange.reconcile.farm.leader_election import ElectedService


def load(settings: Settings) -> None:
    """Import the modules of the chosen roles; takes a good part of a second, so not on the loop."""
    names = (
        ("controllers", "grange.app.manager"),
        ("controllers", "grange.app.evidence_service"),
        ("scheduler", "grange.scheduler.service"),
        ("machines", "grange.app.machine_role"),
    )
    for role, name in names:
        if settings.runs(role):
            import_module(name)


class SchedulerService(Protocol):
    """A scheduler that can be run and asked.

    Attributes:
        names: the ``schedulerName``s whose pods are its own.
    """

    @property
    def names(self) -> frozenset[str]:
        """The scheduler names."""

    def explain(self, pod: Pod) -> Explanation | None:
        """Why the pod is where it is."""

    async def run(self) -> None:
        """Schedule until cancelled."""


def chosen(
    settings: Settings,
    deps: Callable[[str], Deps],
    scheduler: Callable[[Deps], SchedulerService],
    machines: Callable[[Deps], ElectedService],
    why: Explanations,
    sharded: Mapping[str, Any] | None = None,
) -> Iterator[Runnable]:
    """The roles that the settings ask for, but for the agents, in the order in which they start.

    Args:
        settings: which roles.
        deps: tools for a role.
        scheduler: how the scheduler is made.
        machines: how the node controller is made.
        why: learns of the scheduler, so that the API server can ask it.
        sharded: the controllers that share objects; the usual ones by default.
    """
    if not any(settings.runs(role) for role in ("controllers", "scheduler", "machines")):
        return
    from grange.alerts.alerts import SinkTools
    from grange.app.alerting import Alerting
    from grange.app.manager import MACHINES, NAMES, SCHEDULER, Manager
    from grange.controllers.sharded import SHARDED
    from grange.reconcile.farm.config import FarmConfig

    names = set(NAMES) if settings.runs("controllers") else {SCHEDULER, MACHINES}
    for role, name in (("scheduler", SCHEDULER), ("machines", MACHINES)):
        if not settings.runs(role):
            names.discard(name)
    # The lock on the data directory makes sure that no other process has this name, so what an earlier
    # life left behind is taken over at once; and there is no need to wait for others to share with.
    config = FarmConfig(member=f"up-{settings.identity}", sole_bearer=True, gather_s=0.0)
    tools = deps("alerts")
    sink_tools = SinkTools(tools.clock, tools.rng, tools.log, tools.metrics)
    alerting = Alerting(settings.alert_webhook, sink_tools)
    yield from alerting.runnables()

    def started(tools: Deps) -> ElectedService:
        made = scheduler(tools)
        why.add(made.names, made.explain)
        return made

    yield from Manager(
        config,
        deps,
        frozenset(names),
        scheduler=started,
        machines=machines,
        alert_sink=alerting.alert_sink,
        sharded=sharded or SHARDED,
    ).runnables()


def scheduler(settings: Settings) -> Callable[[Deps], SchedulerService]:
    """How the scheduler is made; its configuration file is read now, before anything is served.

    Raises:
        SettingsError: the file cannot be used.
    """
    if settings.scheduler_config is None:

        def usual(deps: Deps) -> SchedulerService:
            from grange.scheduler.service import Scheduler, SchedulerConfig

            return Scheduler(deps, SchedulerConfig(queue_policy=settings.queue_policy))

        return usual
    from grange.app import scheduling

    return scheduling.scheduler(settings.scheduler_config, settings.queue_policy)
