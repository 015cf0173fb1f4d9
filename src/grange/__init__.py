"""Grange: one Python control plane for services, jobs, test sessions and machines.

Connect to a control plane (``grange up``) or to any Kubernetes cluster, as kubectl does:

    import asyncio
    from grange import POD, connect

    async def main() -> None:
        async with connect() as client:
            for pod in (await client.list(POD, "default")).items:
                print(pod.metadata.name, pod.status.phase)

    asyncio.run(main())

Create objects from typed views, or from plain dictionaries with all their fields:

    from grange import CONFIGMAP, ConfigMap, ObjectMeta

    settings = ConfigMap(metadata=ObjectMeta(name="a", namespace="default"), data={"k": "v"})
    await client.create(CONFIGMAP, settings)
    await client.patch(CONFIGMAP, "a", "default", patch={"data": {"k": "w"}})
    await client.delete(CONFIGMAP, "a", "default")

Errors are those of the API: ``NotFound``, ``Conflict``, ``AlreadyExists``, ``Invalid``, each an
``ApiError``. A controller has ``Controller``, ``Deps`` and ``run_controllers``; a test has a whole
control plane in ``with cluster(nodes=3) as c``.

``grange.jobs`` runs functions as jobs and builds operators of jobs, ``grange.sessions`` runs test
sessions from a program, ``grange.testing`` has fixtures for pytest.

The names of ``__all__`` are the public interface; each is loaded when it is first used. Everything
else may change between versions.
"""

__version__ = "0.1.0"

# Name: the module that defines it. ``make update`` writes the types to ``__init__.pyi``.
PUBLIC = {
    # Connections.
    "connect": "grange.app.connect",
    "Client": "grange.client.client",
    "Listing": "grange.client.requests",
    "WatchEvent": "grange.client.watcher",
    # Kinds and their typed views.
    "AUDITRECORD": "grange.api.kinds.auditrecord",
    "AuditRecord": "grange.api.kinds.auditrecord",
    "AuditSpec": "grange.api.kinds.auditrecord",
    "CONFIGMAP": "grange.api.kinds.configmap",
    "ConfigMap": "grange.api.kinds.configmap",
    "NODE": "grange.api.kinds.node",
    "Node": "grange.api.kinds.node",
    "POD": "grange.api.kinds.pod",
    "Container": "grange.api.kinds.pod",
    "Pod": "grange.api.kinds.pod",
    "PodSpec": "grange.api.kinds.pod",
    "BatchJob": "grange.api.kinds.batchjob",
    "CRONJOB": "grange.api.kinds.cronjob",
    "CronJob": "grange.api.kinds.cronjob",
    "JOB": "grange.api.kinds.batchjob",
    "GANGJOB": "grange.api.kinds.gangjob",
    "GangJob": "grange.api.kinds.gangjob",
    "GangJobSpec": "grange.api.kinds.gangjob",
    "LEASEPOLICY": "grange.api.kinds.leasepolicy",
    "LeasePolicy": "grange.api.kinds.leasepolicy",
    "LeasePolicySpec": "grange.api.kinds.leasepolicy",
    "MACHINE": "grange.api.kinds.machine",
    "Machine": "grange.api.kinds.machine",
    "MachineSpec": "grange.api.kinds.machine",
    "MACHINELEASE": "grange.api.kinds.machinelease",
    "MachineLease": "grange.api.kinds.machinelease",
    "MachineLeaseSpec": "grange.api.kinds.machinelease",
    "NODEPOOL": "grange.api.kinds.nodepool",
    "NodePool": "grange.api.kinds.nodepool",
    "NodePoolSpec": "grange.api.kinds.nodepool",
    "PYTORCHJOB": "grange.api.kinds.pytorchjob",
    "PyTorchJob": "grange.api.kinds.pytorchjob",
    "TFJOB": "grange.api.kinds.tfjob",
    "TFJob": "grange.api.kinds.tfjob",
    "PODGROUP": "grange.api.kinds.podgroup",
    "PodGroup": "grange.api.kinds.podgroup",
    "QUEUE": "grange.api.kinds.queue",
    "Queue": "grange.api.kinds.queue",
    "QueueSpec": "grange.api.kinds.queue",
    "REPLICATIONCONTROLLER": "grange.api.kinds.replicationcontroller",
    "ReplicationController": "grange.api.kinds.replicationcontroller",
    "ReplicationControllerSpec": "grange.api.kinds.replicationcontroller",
    "ROLLINGUPDATE": "grange.api.kinds.rollingupdate",
    "RollingUpdate": "grange.api.kinds.rollingupdate",
    "RollingUpdateSpec": "grange.api.kinds.rollingupdate",
    "SECRET": "grange.api.kinds.secret",
    "Secret": "grange.api.kinds.secret",
    "SERVICE": "grange.api.kinds.service",
    "Service": "grange.api.kinds.service",
    "TESTSESSION": "grange.api.kinds.testsession",
    "TestSession": "grange.api.kinds.testsession",
    "TestSessionSpec": "grange.api.kinds.testsession",
    "KindInfo": "grange.api.scheme",
    "Condition": "grange.api.meta",
    "ObjectKey": "grange.api.meta",
    "ObjectMeta": "grange.api.meta",
    "Resource": "grange.api.meta",
    "View": "grange.api.meta",
    # Errors.
    "GrangeError": "grange.base.errors",
    "ApiError": "grange.api.status",
    "AlreadyExists": "grange.api.status",
    "Conflict": "grange.api.status",
    "Expired": "grange.api.status",
    "Forbidden": "grange.api.status",
    "Invalid": "grange.api.status",
    "NotFound": "grange.api.status",
    "ServiceUnavailable": "grange.api.status",
    "Timeout": "grange.api.status",
    # Controllers.
    "run_controllers": "grange.app.connect",
    "Controller": "grange.reconcile.controller",
    "Deps": "grange.reconcile.deps",
    "Done": "grange.reconcile.controller",
    "Requeue": "grange.reconcile.controller",
    "Result": "grange.reconcile.controller",
    "Terminal": "grange.reconcile.controller",
    # Tests.
    "Cluster": "grange.testing.embedded",
    "cluster": "grange.testing.embedded",
}

__all__ = ["__version__", *PUBLIC]  # noqa: PLE0604  names only


def __getattr__(name: str) -> object:
    """Load a public name on first use, so that ``import grange`` stays quick."""
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # the supervisor of each container loads this package

    value = getattr(import_module(PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What completion and ``help`` show."""
    return sorted({*globals(), *__all__})
