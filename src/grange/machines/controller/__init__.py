"""The node controller: leads each machine through its life.

Owns: the settings (``node_controller_config``), the decision what a machine needs next
    (``machine_lifecycle``), when a pass begins (``pass_window``), which planned machines it launches
    (``launch_choice``), which instances and records have lost each other (``instance_looks``), and the
    writes of statuses (``status_updater``).
Never: decides which machines a pool needs (``machines.scaling`` does).
Flow: record, instance and node → ``next_step`` → one write or one call to the provider → the next look.
Concurrency: plain functions and values that take ``now``; ``StatusUpdater`` alone writes;
    what carries the steps out is not here yet.
Start reading at: ``machine_lifecycle``.
"""
