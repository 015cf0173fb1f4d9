"""The garbage collector: objects go when all their owners are gone.

Owns: the graph of owner references over all kinds, and the finalizers ``orphan`` and
    ``foregroundDeletion``.
Never: deletes by what a cache shows. An owner counts as gone only when a live read shows it.
Flow: any object changes → ``graph`` → uids to look at → ``logic`` (pure) → one fenced write.
Concurrency: one uid is looked at once at a time, several side by side.
Start reading at: ``graph``, then ``logic``.
"""
