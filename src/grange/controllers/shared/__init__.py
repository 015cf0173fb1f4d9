"""What several controllers need to know about the pods of ReplicationControllers, and about rollouts.

Nothing here knows a controller. All of it is pure except the live reads of ``availability`` and
``audit_records.write``.
"""
