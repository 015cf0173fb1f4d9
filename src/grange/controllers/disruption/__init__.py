"""The disruption controller: keeps count of how many pods a disruption budget lets go.

Owns: the status of every PodDisruptionBudget: its counts, ``disruptionsAllowed``, the condition
    ``DisruptionAllowed``, and the end of entries in ``disruptedPods``.
Never: evicts anything, and never adds to ``disruptedPods``; the eviction subresource does both.
Flow: budget, pods and the scales of their owners → ``logic`` → status, written only on the version
    that was read, so that an allowance that was spent meanwhile is not given out again.
Concurrency: one budget is worked on once at a time, several side by side. Without a budget there is
    nothing to watch: it watches pods from the first budget on.
Start reading at: ``logic``, then ``controller``.
"""
