"""Rollouts between two ReplicationControllers, by RollingUpdate objects.

Owns: the counts of both controllers during a rollout, one step at a time, and the records of it.
Never: creates or deletes pods; it changes ``spec.replicas`` of the two controllers.
Flow: informers → ``controller`` → ``logic`` (pure) → status under compare-and-set → replicas
    (``controller_pair``).
Concurrency: one rollout at a time for each pair of controllers.
Start reading at: ``logic``, then ``controller``.
"""
