"""``grange why`` by kind: one module and one line each; other kinds are explained by ``generic``."""

from collections.abc import Mapping

from grange.api.kinds import MACHINELEASE, SERVICE, TESTSESSION
from grange.cli import job_view
from grange.cli.why import (
    jobs,
    machineleases,
    pods,
    replicationcontrollers,
    services,
    testsessions,
)
from grange.cli.why.answer import Ask

TABLE: Mapping[str, Ask] = {
    "pods": pods.ask,
    **{kind.qualified: jobs.ask for kind in job_view.KINDS},
    MACHINELEASE.qualified: machineleases.ask,
    SERVICE.qualified: services.ask,
    TESTSESSION.qualified: testsessions.ask,
    "replicationcontrollers.grange.dev": replicationcontrollers.ask,
}
