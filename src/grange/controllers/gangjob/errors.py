"""Errors of the job controller."""

from grange.base.errors import GrangeError


class InvalidJob(GrangeError):
    """The spec of a job cannot be acted on; the message names the field and the remedy."""
