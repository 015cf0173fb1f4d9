"""Machines for holders that are no pods: the machine pool of ReplicationControllers.

Owns: claims on machines of dedicated pools by other objects than pods (``node_pool_machines``), requests to
    pools for what is missing (``claim_requests``), claims by MachineLeases (``lease_machines``), both as one
    pool (``combined_pool``), and the epochs of owners (``holder_epochs``).
Never: orders or ends machines, which the node controller does; claims one that is meant for a pod.
Flow: a request → the epoch is recorded → machines are claimed one by one, each at the version that was read →
    the epoch is checked again. A release gives machines back; the node controller wipes or ends them.
Concurrency: any number of processes, without a leader. What counts is on the Machines, on the leases and in
    one ConfigMap.
Start reading at: ``node_pool_machines``.
"""
