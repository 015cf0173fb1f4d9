"""Rules beyond the schema: pure functions from documents to causes.

Owns: field paths and the wording of faults, the rules of metadata, pod specs and selectors, and
    ``validate``, which puts a kind's rules and the common ones together.
Never: defaults (see ``api.defaults``), types and unknown fields (see ``api.schema``).
Flow: a document that passed ``schema.check`` and ``schema.apply_defaults`` → list of causes.
Concurrency: pure.
Start reading at: ``causes``, then ``objects``.
"""

from grange.api.validation.objects import validate

__all__ = ["validate"]
