"""Whether a pod fits a node and how well: pure algebra over requests, taints, affinity and ports.

Owns: what a pod asks for, what a node refuses, the node table (columns) and its kernels, and the
    scalar reference that every kernel must equal.
Never: pods' lifecycles, queues, plugins' order or weights; nothing here waits or reads a clock.
Flow: typed views → ``api.pod_requests``/``taint_toleration``/``node_rules``/``ports`` → numbers → ``columns`` →
    ``kernels`` (all nodes at once) or ``resource_fit`` (one node).
Concurrency: values and plain functions; a ``NodeTable`` has one owner, which also writes it.
Start reading at: ``node_usage``, then ``resource_fit``, then ``columns`` and ``kernels``.
"""
