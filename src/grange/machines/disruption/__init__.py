"""Disruption: which machines of packed pools are taken away or replaced, though they work.

Owns: who comes into question and what that would cost (``disruption_candidates``), how many may be disrupted
    at a time (``disruption_allowance``), what is decided (``machine_disruptor``), in which order the pods of a
    node go (``node_drain``), and what a notice of a provider means (``interruption_response``).
Never: writes, evicts or calls a provider; decides about dedicated machines, which end when their holder does
    or their provider takes them away.
Flow: machines, nodes and pods → ``MachineDisruptor.decide`` → a decision → 15 s later ``validate`` →
    replacements → ``drain_step`` for each machine → its end.
Concurrency: plain functions and values that take ``now``.
Start reading at: ``machine_disruptor``.
"""
