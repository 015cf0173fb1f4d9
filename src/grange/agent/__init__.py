"""The node agent: runs the pods that are bound to its node and reports their status.

Owns: pod workers, the pod lifecycle, probes, container environment and volumes, logs, the Node
    object and its heartbeat, and the runtimes that really start programs.
Never: chooses a node for a pod, opens the store, imports the API server.
Flow: informer (pods of this node) → one worker a pod → ``lifecycle.decide`` → runtime; exits and
    probe results wake the worker → ``status`` → one status patch where something changed.
Concurrency: one task a pod, one a probe, one for the heartbeat; a runtime is shared by all the
    agents of a process and only called on the loop.
Start reading at: ``container_runtime`` (the seam), then ``transitions``, ``lifecycle``, ``worker``.
"""
