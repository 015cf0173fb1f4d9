"""The verbs of ``grange test``."""
