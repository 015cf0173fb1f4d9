"""Runs of test sessions: from manifests and parameters to outcomes, reports and exit codes."""
