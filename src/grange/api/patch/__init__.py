"""Changes to documents: JSON patch, JSON merge patch and Kubernetes' strategic merge patch.

Owns: what a patch means.
Never: whether the result is right (see ``api.schema`` and ``api.validation``).
Flow: document, patch → a new document that shares nothing with either.
Concurrency: pure.
Start reading at: ``merge_patch``, then ``strategic``.
"""
