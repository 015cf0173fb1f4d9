"""The verbs of ``grange lease``."""
