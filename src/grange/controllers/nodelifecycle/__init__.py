"""The node lifecycle controller: notices nodes that fall silent and frees their pods.

Owns: ``Ready=Unknown`` on silent nodes, the taints ``node.kubernetes.io/not-ready`` and
    ``…/unreachable``, eviction of pods from nodes with NoExecute taints, and the removal of pods
    whose node is gone or that ended long ago.
Never: places or restarts anything; replacing an evicted pod is its owner's business.
Flow: heartbeats (Lease renewals) → ``node_health`` (local time since the last one) →
    ``node_ready_condition`` and ``node_taints`` on the node → ``eviction`` → pods deleted. Pods
    without a node → ``podgc``.
Concurrency: one monitor beat at a time; evictions by pod, side by side.
Start reading at: ``node_health``, then ``eviction``, then ``controller``.
"""
