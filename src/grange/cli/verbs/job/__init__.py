"""The verbs of ``grange job``."""
