"""The replication controller: so many copies of a pod, on nodes that fit, kept alive.

Owns: every pod whose controller reference carries the uid of a ReplicationController, the labels
    of ``identity`` on those pods, and the controller's status.
Never: a pod of somebody else, a node, a placement decision (the scheduler checks fit and binds).
Flow: change of a controller, pod or node → key → ``logic.claim`` and ``logic.plan`` (pure) →
    ``writes`` (fenced, in slow-start batches) → ``status`` (one write, only when it changed).
Concurrency: passes of one key are serial, keys run side by side; a pass awaits only writes.
Start reading at: ``logic``, then ``passes``; ``controller`` puts it together.
"""
