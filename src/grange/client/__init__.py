"""Verbs on the Kubernetes API, whatever carries them.

Owns: requests and their interpretation, list-watch streams, transports, kubeconfig.
Never: caches, retries of writes, knowledge of which transport it was given.
Flow: typed call → ``requests`` builds a ``Request`` → transport → ``Response`` → ``requests`` or
    ``watch`` decodes it to a typed view or raises an ``ApiError``.
Concurrency: any number of calls at once; cancellation of a write leaves its outcome unknown.
Start reading at: ``client``, then ``requests``.
"""
