"""The front door: settings, keys, the object graph, roles and signals.

Owns: composition; the only reader of the environment and of argv; the process's life.
Never: decisions about objects.
Flow: argv and environment → ``Settings`` → ``ControlPlane`` (store, API server, client, roles) →
    run until a signal → stop in reverse order.
Concurrency: owns the event loop and the outermost nursery.
Start reading at: ``controlplane``, then ``up``.
"""
