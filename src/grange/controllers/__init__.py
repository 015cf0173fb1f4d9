"""The controllers: each keeps one promise about objects of some kind.

Owns: one package a controller, ``shared`` for what several of them use, and two tables of how they
    are made: ``TABLE`` for those that one member runs, ``sharded.SHARDED`` for those that share objects.
Never: a controller that knows another; they meet only through the API.
Flow: informers → work queue key → pure decision → fenced writes → events and conditions.
Concurrency: every controller is a service with ``run()``; the caller owns its task.
Start reading at: ``replication``; it shows the pattern that the others follow.
"""

from collections.abc import Callable

from grange.controllers.audit.controller import AuditController
from grange.controllers.cronjob.controller import CronJobController
from grange.controllers.disruption.controller import DisruptionController
from grange.controllers.endpoints.controller import EndpointsController
from grange.controllers.garbagecollector.controller import GarbageCollector
from grange.controllers.machinelease.controller import MachineLeaseController
from grange.controllers.namespace.controller import NamespaceController
from grange.controllers.nodelifecycle.controller import NodeLifecycle
from grange.controllers.rollingupdate.controller import RollingUpdateService
from grange.reconcile.deps import Deps
from grange.reconcile.farm.leader_election import ElectedService

TABLE: tuple[tuple[str, Callable[[Deps], ElectedService]], ...] = (
    ("rollingupdate", RollingUpdateService),
    ("namespace", NamespaceController),
    ("garbagecollector", GarbageCollector),
    ("nodelifecycle", NodeLifecycle),
    ("disruption", DisruptionController),
    ("cronjob", CronJobController),
    ("endpoints", EndpointsController),
    ("audit", AuditController),
    ("machinelease", MachineLeaseController),
)
"""The controllers that one member runs at a time: name, and how it is made with default settings.

Those of which every member runs a share are in ``sharded``.
"""
