"""Frameworks of jobs by name; how each wires its pods is a module of the job controller."""

NAMES = (
    "Generic",
    "TensorFlow",
    "PyTorch",
    "MPI",
    "JAX",
    "XGBoost",
)
"""What ``spec.framework`` of a GangJob may be; the first is the default."""
