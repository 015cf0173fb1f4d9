"""Gang jobs: multi-role jobs whose pods start together, and are restarted and counted exactly.

Owns: the kinds GangJob, TFJob, PyTorchJob and, where the server has no controller for it, the Job of
    batch/v1; the library that an operator for another kind is built on.
Never: places pods (the scheduler does) or knows how a kind is stored outside ``adapters``.
Flow: adapter → ``JobModel`` and ``JobInputs`` → ``logic.plan`` (pure) → ``JobPlan`` → fenced writes.
Concurrency: one reconcile of a job at a time; jobs are shared between the members of the farm.
Start reading at: ``model``, then ``logic``.
"""
