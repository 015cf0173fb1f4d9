"""What the verbs of ``grange lease`` make of leases, nodes and the policy."""
