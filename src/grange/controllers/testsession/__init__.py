"""Test sessions: pods of several components on reserved machines, a verdict, and clean-up.

Owns: the phases of a TestSession, its lease, its pods and their files, its verdict and its events.
Never: grants machines (the lease's controller does), or keeps logs (an ``EvidenceCollector`` does).
Flow: session, lease and pods → ``logic.decide`` (pure) → the status under compare-and-set → writes.
Concurrency: one reconcile of a session at a time; members of the farm share the sessions.
Start reading at: ``session_phase``, then ``logic``.
"""
