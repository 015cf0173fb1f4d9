"""Benchmarks: scenarios are modules with ``measure()``; ``python -m bench`` runs them."""
