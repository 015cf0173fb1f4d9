"""Grange: one Python control plane for services, jobs, test sessions, machines and placement."""

__version__ = "0.1.0"
