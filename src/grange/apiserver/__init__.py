"""Kubernetes HTTP over the store: one generic path for every kind.

Owns: routing, authentication and authorization of requests, the write pipeline (decode → default →
    admit → validate → write), lists, watches, discovery, OpenAPI, health, subresources, the
    HTTPS listener.
Never: kinds by name in the generic path (a kind is a ``KindInfo``), decisions of controllers,
    a client; it reads and writes nothing but the store.
Flow: ``wire.Request`` → ``application`` → ``request_info`` → ``authorization`` → a handler → ``registry``
    → store; stored bytes go out again as they are.
Concurrency: any number of calls at once on one event loop. A write decides and is accepted without
    an await in between, so no two writes interleave; only the store's acknowledgement is awaited.
Start reading at: ``application``, then ``registry``, then ``watch``.
"""
