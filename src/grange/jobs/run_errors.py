"""Errors of jobs that a program runs.

::

    GrangeError
    ├── FunctionNotPortable   before anything is created: the function or an argument cannot be sent
    └── JobRunError           the job is on the cluster, or was
        ├── JobFailed         its message has the output of the member that failed
        ├── JobDeleted        cancelled, or deleted by another user or by its time to live
        └── ResultUnavailable it succeeded, but there is no value to return
"""

from grange.base.errors import GrangeError


class FunctionNotPortable(GrangeError):
    """A function or an argument cannot be sent to the members of a job."""


class JobRunError(GrangeError):
    """What was asked of a job has no answer."""


class JobFailed(JobRunError):
    """The job has failed; the message has the reason and the end of the failed member's traceback."""


class JobDeleted(JobRunError):
    """The job does not exist any more."""


class ResultUnavailable(JobRunError):
    """A member of a job that succeeded left no value."""
