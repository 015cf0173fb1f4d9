"""Scaling algorithms: pure functions from machines and pods to a plan."""
