"""Conversion of LoadTests (``e2etest.grpc.io/v1``) into TestSessions: pure."""
