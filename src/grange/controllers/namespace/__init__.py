"""The namespace controller: a namespace that is deleted is emptied first.

Owns: the finalizer ``kubernetes`` in ``spec.finalizers`` of every namespace, and the conditions of
    terminating ones.
Never: touches a namespace that is not being deleted. That nothing new appears in a terminating one
    is the API server's promise.
Flow: namespace is Terminating → delete its pods, wait until they are gone → delete all the rest →
    empty → ``/finalize``. What blocks the deletion is in conditions.
Concurrency: one namespace is worked on once at a time, several side by side.
Start reading at: ``logic``, then ``controller``.
"""
