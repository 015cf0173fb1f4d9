"""The replication controller: keeps so many copies of a pod, on nodes that fit.

Owns: every pod whose controller reference has the uid of a ReplicationController, the labels of
    ``pod_identity`` on those pods, and the controller's status.
Never: another controller's pod, a node, a placement decision (the scheduler checks fit and binds).
Flow: event → key → ``reconciler``: observe → ``logic`` (pure: constrain, plan) →
    ``pod_control`` (fenced, in slow-start batches) → ``controller_status`` (one write, if it changed).
Concurrency: reconciles of one key are serial, keys run concurrently; a reconcile awaits only requests.
Start reading at: ``reconciler``, then ``logic``; ``controller`` wires the parts.
"""
