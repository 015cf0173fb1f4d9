"""CronJobs of batch/v1: a Job at each time of a schedule.

Owns: which Job is due, which is in the way, which of the finished ones are kept.
Never: runs pods; the Job's own controller does.
Flow: CronJob and its Jobs → ``logic.plan`` (pure) → Jobs created and deleted, status.
Concurrency: one reconcile of a CronJob at a time; one member of the farm runs them all.
Start reading at: ``logic``.
"""
