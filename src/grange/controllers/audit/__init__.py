"""Retention of audit records, which the replication and rollingupdate controllers write.

Owns: how many AuditRecords of each controller are kept, and for how long.
Never: writes a record.
Flow: every hour, ``controller`` lists the records page by page and deletes the surplus.
Concurrency: one pass at a time.
Start reading at: ``controller``.
"""
