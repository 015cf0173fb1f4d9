"""Which node a pod runs on.

Owns: the assumed-pod cache and its snapshots, the queue of waiting pods, the framework and its
    plugins, the engine that decides, binding; ``preemption``, ``gangs`` with their queues' quotas,
    and ``explain``, which explains why a pod waits.
Never: running pods, changing nodes; it writes bindings, conditions of pods, gangs and queues, and
    events, and deletes the victims of preemption, all through the client.
Flow: informers → ``event_handlers`` → ``cache`` and ``queue`` → ``schedule_one`` (snapshot → ``engine``
    → assume) → ``binder`` → informer confirms the assumption.
Concurrency: cache, queue, engine and cycle are synchronous, take ``now`` and belong to the one
    event loop; ``service`` is the asynchronous shell and schedules in slices, ``binder`` writes the
    bindings, ``pod_conditions`` why pods wait.
Start reading at: ``schedule_one``, then ``cycle``, ``cache`` and ``engine``; ``framework`` for plugins.
"""
