"""Adapters: one module for each kind of job.

Owns: what a document of the kind means in the words of the core, and how its status is written.
Never: decides anything about pods.
Flow: typed view → ``conversion.check_spec`` → ``JobModel``; ``JobStatus`` → document.
Concurrency: pure functions of frozen values.
Start reading at: ``gangjob``.
"""

from typing import Any

from grange.controllers.gangjob.adapter import JobAdapter
from grange.controllers.gangjob.adapters.batchjob import BATCHJOB_ADAPTER
from grange.controllers.gangjob.adapters.gangjob import GANGJOB_ADAPTER
from grange.controllers.gangjob.adapters.pytorchjob import PYTORCHJOB_ADAPTER
from grange.controllers.gangjob.adapters.tfjob import TFJOB_ADAPTER

ADAPTERS: tuple[JobAdapter[Any], ...] = (
    GANGJOB_ADAPTER,
    TFJOB_ADAPTER,
    PYTORCHJOB_ADAPTER,
    BATCHJOB_ADAPTER,
)
"""One a kind."""
