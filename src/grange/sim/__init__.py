"""Simulation: the real program under virtual time, with faults, and invariants that must survive.

Owns: the virtual loop, the pytest plugin that runs tests on it, builders, faults, the whole world in
    one process, invariants over histories.
Never: a switch inside production code; a fault is a wrapper around a real seam.
Flow: a seed → streams → a world of real rooms on virtual time → a history → invariants hold, or the
    seed is printed.
Concurrency: one virtual loop a run; nothing real is waited for.
Start reading at: ``loop``, then ``pytest_plugin``, then ``world``.
"""
