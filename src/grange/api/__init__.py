"""What the objects are: kinds as types, and everything that is true of them without a server.

Owns: the kinds and their rules, wire formats, quantities, selectors, patches, schemas, tables and
    the errors of the API.
Never: I/O, time (callers pass ``now``), the store, HTTP.
Flow: bytes → ``codec`` → full document → ``schema.check`` → ``schema.apply_defaults`` →
    ``validation.validate`` → bytes; readers decode the same bytes to a kind's partial view.
Concurrency: pure functions and frozen values, safe from any task or thread.
Start reading at: ``meta``, then ``scheme``, then ``kinds.configmap`` as the smallest kind.
"""
