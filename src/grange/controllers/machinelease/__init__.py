"""The controller of machine leases: grants whole machines to those that wait, and takes them back.

Owns: the marks of leases on nodes (label, taint and annotations), the status and finalizer of
    MachineLeases, and the pods of leases that expired.
Never: creates pods, or places any; the marks on a node keep other pods away from it.
Flow: leases, nodes and pods → ``placement.machine_table`` and ``placement.lease_queue`` → who is next →
    ``claims`` marks nodes by versioned writes → status ``Granted``. A deleted or expired lease →
    ``releases``: nodes become free one by one when no pod of the lease is left on them.
Concurrency: one member runs it. One decision at a time; claims and releases side by side. The nodes
    are the ledger: a claim is a write at the version of the node that was free, so that a late write of
    an earlier member either fails, or is a claim that its successor finds and completes or undoes.
Start reading at: ``logic``, then ``claims``, then ``controller``.
"""
