"""What carries requests; each module is one implementation of ``client.transport.Transport``."""
