"""Rollouts between two ReplicationControllers, by RollingUpdate objects.

Owns: counting the pods of both controllers, one step at a time, and the records of what it did.
Never: creates or deletes pods; it changes ``spec.replicas`` of the two controllers.
Flow: informers → ``controller`` → ``logic`` (pure) → status under compare-and-set → replicas.
Concurrency: one rollout at a time for each pair of controllers.
Start reading at: ``logic``, then ``controller``.
"""
