"""The service proxy: lets the cluster addresses of Services lead to their pods, on one machine.

Owns: listeners on the cluster addresses and node ports of Services, and the connections through them.
Never: which pods a Service has; that is what its EndpointSlices state.
Flow: Services and EndpointSlices → ``routes`` (pure) → listeners are opened and closed → a connection
    → ``balancer`` chooses an endpoint → bytes are copied both ways (``tcp_listener``, ``udp_listener``).
Concurrency: one task follows the objects; every connection is two asyncio protocols without a task, but for
    the moment in which it is connected to its endpoint.
Start reading at: ``routes``, then ``proxy``.
"""
