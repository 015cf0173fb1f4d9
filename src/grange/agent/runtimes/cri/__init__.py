"""Pods by a container runtime of the machine: CRI v1 over gRPC, as containerd and CRI-O speak it.

Owns: sandboxes and containers that carry the labels of this data directory, and the pods' files.
Never: decides when an image is pulled, opens a socket of a pod.
Flow: ``prepare`` runs a sandbox → ``start`` creates and starts a container → its end is noticed by
    listing containers → ``remove`` stops the sandbox, removes it and deletes the pod's files.
    Replicas that listen on all addresses get their pod's: ``bind_notifier``.
Concurrency: calls on one event loop; the list of containers is read while any of them runs.
Start reading at: ``cri_runtime``, then ``cri_requests`` and ``cri_status`` for what is sent and read.
"""
