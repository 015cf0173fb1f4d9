"""The built-in kinds: one module a kind, one line here."""
