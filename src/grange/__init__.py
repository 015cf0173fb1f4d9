"""Grange: one Python control plane for services, jobs, test sessions, machines and placement."""
