"""Gangs: pods that are placed all or none, and queues that limit how much may be used at a time.

Owns: which pods belong to which group, quotas, and the attempt to place a whole gang.
Never: a gang that holds a part of what it needs while it waits for the rest.
Flow: ``coscheduling`` is asked before each pod is tried; a pod of a gang stands for the whole of it. ``gang_admission``
    decides about groups whose pods are created only then.
Concurrency: synchronous, inside the scheduling loop; only ``podgroup_status`` writes.
Start reading at: ``coscheduling``. A queue policy is one module in ``queue_policies``.
"""
