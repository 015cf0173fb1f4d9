"""A parameter of deletes that only our server knows.

Kubernetes takes two writes to end an object that the caller's finalizer holds: one that deletes it, one
that removes the finalizer. For a controller that counts thousands of pods with a finalizer each this is
a large part of its work, so our server also takes both in one. A server that does not know the
parameter ignores it, and marks the object: its finalizer is then removed as ever.
"""

REMOVE_FINALIZER = "removeFinalizer"
"""Its value is a finalizer that the delete removes too; the caller needs the verb ``patch`` for that."""
