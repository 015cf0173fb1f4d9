"""Who may do what.

Owns: what a request is to an authorizer, the order in which authorizers are asked, and role-based
    access control (RBAC) as Kubernetes defines it.
Never: who a user is (see ``authn``), or what an object may contain (see ``admission``).
Flow: request → ``AuthorizationAttributes`` → the authorizers in order → ``AuthorizationDecision``.
Concurrency: pure functions and synchronous reads of views in memory.
Start reading at: ``authorizer``.
"""
