"""The roles of a control plane: one table of what runs beside the API server.

Each role is a service with ``async def run()``. Modules are imported when their role is chosen, so
that the API is served before numpy is loaded.
"""

from collections.abc import Callable, Iterator
from importlib import import_module

from grange.app.host import Host
from grange.app.role import Role
from grange.app.settings import Settings
from grange.reconcile.deps import Deps


def load(settings: Settings) -> None:
    """Import the modules of the chosen roles; takes a good part of a second, so not on the loop."""
    names = {"controllers": "grange.controllers", "scheduler": "grange.scheduler.service"}
    for role, name in names.items():
        if settings.runs(role):
            import_module(name)


def chosen(settings: Settings, host: Host, deps: Callable[[str], Deps]) -> Iterator[Role]:
    """The roles that the settings ask for, in the order in which they start."""
    if settings.runs("agent"):
        yield from host.roles(deps)
    if settings.runs("controllers"):
        from grange.controllers import TABLE

        for name, factory in TABLE:
            yield Role(name, factory(deps(name)).run)
    if settings.runs("scheduler"):
        from grange.scheduler.service import Scheduler, SchedulerConfig

        yield Role("scheduler", Scheduler(deps("scheduler"), SchedulerConfig()).run)
