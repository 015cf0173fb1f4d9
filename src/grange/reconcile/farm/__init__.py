"""A farm: several members share the objects of a kind, and each object has one writer at a time.

Owns: a member's session (one Lease), who the members are, which object is whose, the claims on
    objects, the fence before every write, and the deletion guard before every deletion.
Never: what a controller does with its objects; a promise that rests on two clocks agreeing.
Flow: Lease → ``Session`` with an epoch → ``Members`` → ``assign`` → claims, compared and set on the
    objects → passes under a claim, through a ``FencedClient`` → release, or the session's end.
Concurrency: one event loop; ``Member.run`` owns all tasks. Decisions are pure and take ``now``.
Start reading at: ``member``, then ``farm``, then ``member_session``; docs/explanation/farm.md explains why it is safe.
"""
