"""Revisioned bytes with watch on SQLite.

Owns: revisions, durability, compare-and-swap, history, compaction and watch fan-out.
Never: kinds, JSON, HTTP; keys are strings and values are bytes.
Flow: ``put(key, make_value, expect)`` → accepted at revision r in memory → group commit in the
    writer's thread → acknowledged → visible to reads → delivered to watchers.
Concurrency: called on one event loop; only the writer's thread touches the database to write.
Start reading at: ``interface``, then ``memory`` (the executable specification), then ``sqlite``.
"""
