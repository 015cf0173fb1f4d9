"""Preemption: which pods are deleted so that one of higher priority fits.

Owns: the choice of a node and of the victims on it (``evaluator``, ``victim_selection``), and
    carrying it out (``evictor``); budgets are in ``scheduler.disruption_budgets``.
Never: a victim of equal or higher priority; a write while deciding. A pod that preempts is not
    placed by it: it is *nominated* to the node, and tried there first once its victims are gone.
Flow: no node → candidates → victims by node → the best → nomination → deletions, concurrently.
Concurrency: everything but what carries it out is synchronous and belongs to one scheduling loop.
Start reading at: ``evaluator``.
"""
