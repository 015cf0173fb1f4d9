"""The verbs: one module each, exporting ``command``; listed in ``cli.main.VERBS``."""
