"""Reports about NodePools that are requested and answered through the API.

A client sets an annotation of the pool; the node controller, wherever it runs, writes the report into the
pool's status under the id of the request and removes the annotation.
"""

PLAN, AUDIT = "plan", "audit"
"""What may be requested: what would be done for the pool, or whether records and provider agree."""

REPORT_PREFIX = "reports.grange.dev/"
"""Prefix of annotations of NodePools; the id of the request follows, and the value is what is requested."""
