"""The node controller: leads each machine through its life, and gives it to the pod that waits for it.

Owns: passes over pools (``pass_window``, ``pool_pass``, ``launch_choice``, ``launch_budgets``, ``pool_status``), the life of
    one machine (``machine_lifecycle`` decides, ``machine_executor`` carries out), the providers
    (``provider_table``, ``provider_watch``, ``provider_calls``, ``instance_looks``), claims
    (``node_dispenser``), the marks of nodes (``machine_nodes``), and the writes of statuses (``status_updater``).
Never: decides which machines a pool needs (``machines.scaling`` does).
Flow: pods and records → plan → records → ``next_step`` → one write or one call to the provider → the next look.
Concurrency: one member runs it; one pass at a time, one task a machine, one watch a provider. Every write has
    the version that it was decided on, so that a late one of a former member changes nothing.
Start reading at: ``machine_lifecycle``, then ``node_controller``.
"""
