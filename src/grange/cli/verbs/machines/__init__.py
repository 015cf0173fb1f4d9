"""The verbs of ``grange machines``."""
