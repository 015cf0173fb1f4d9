"""The toolkit under every controller: caches that converge and queues that never lose a key.

Owns: informers and their indexers, the work queue, the controller loop, expectations, owner
    references and claims, the event recorder.
Never: a rule about any particular kind; writes other than owner references and Events.
Flow: watch → informer store → handler → work queue key → ``Controller`` → ``reconcile(key)`` →
    client, with expectations bridging the time until the store shows our own writes.
Concurrency: one event loop; handlers run synchronously, workers are children of ``run``.
Start reading at: ``controller``, then ``informer``, then ``workqueue``.
"""
