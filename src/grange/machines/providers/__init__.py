"""Providers: one package each, and the protocol that all of them implement."""
