"""The node manager: orders machines that pods wait for, hands them out once, and ends what nothing needs.

Owns: NodePools and Machines, the scaling algorithms, the life of a machine (boot, claim, clean, end),
    the dispenser, disruption, and the providers.
Never: places pods on shared machines (the scheduler does), knows what a pod belongs to, takes the answer of a
    provider for what it did.
Flow: pods and machines → ``ScalingAlgorithm.compute`` → ``ScalingPlan`` → records of machines →
    provider calls under the machine's name → nodes join → available → claimed or scheduled on → ended.
Concurrency: one pass at a time for all pools, one task a machine, all of them owned by the controller.
Start reading at: ``scaling_plan``, then ``providers.provider`` and the table in ``api.machine_phases``.
"""
