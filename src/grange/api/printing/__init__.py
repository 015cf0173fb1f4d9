"""What people see: the cells of kubectl's tables, computed from full documents.

Owns: ages, counts and summaries such as a pod's STATUS.
Never: layout; rows become text at the client.
Flow: document, wall time → one cell; a document from the network may lack anything.
Concurrency: pure.
Start reading at: ``cells``, then ``pods``.
"""
