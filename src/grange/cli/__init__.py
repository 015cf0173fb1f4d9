"""Placeholder docstring; the room fills it."""
