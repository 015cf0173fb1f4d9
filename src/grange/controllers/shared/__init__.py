"""What several controllers need to know about the pods of ReplicationControllers, and about rollouts.

Nothing here knows a controller; pure but for ``live_reads`` and ``audit_records.write``.
"""
