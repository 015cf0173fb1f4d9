"""Names of Services and pods: what they stand for, and how programs look them up.

Owns: the names of the cluster's domain, and the files by which an isolated container resolves names.
Never: which pods a Service has; that is what its EndpointSlices state.
Flow: Services and EndpointSlices → ``service_records`` (pure) → ``pod_files`` (pure) writes ``/etc/hosts``
    and ``/etc/resolv.conf``.
Start reading at: ``service_records``, then ``pod_files``.
"""
