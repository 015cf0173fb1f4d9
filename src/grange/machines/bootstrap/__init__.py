"""Bootstrap: the user data with which a machine becomes a node.

Owns: what a machine is given to join (``join_facts``), where the agent comes from (``agent_package``), the files
    and the command that install and start it (``agent_setup``), templates of user data for other clusters
    (``user_data_template``), and the choice between them (``user_data``).
Never: makes tokens, talks to a provider, logs what it composes.
Concurrency: plain functions.
Start reading at: ``user_data``.
"""
