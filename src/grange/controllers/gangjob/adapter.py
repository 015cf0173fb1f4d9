"""What the controller needs to know of a kind of job: one module in ``adapters`` implements it."""

from dataclasses import dataclass
from typing import Protocol, TypeVar

from grange.api.job_status import JobStatus
from grange.api.meta import Document, Resource
from grange.api.scheme import KindInfo
from grange.controllers.gangjob.model import JobModel

R = TypeVar("R", bound=Resource)


@dataclass(frozen=True, slots=True)
class JobLabels:
    """The keys of the labels of a job's pods and Services.

    Attributes:
        operator: key and value by which all pods of the kind are selected.
        job: key; the value is the job's name.
        role: key; the value is the role in lower case.
        index: key; the value is a decimal number.
        attempt: key; the value is a decimal number.
        leader: key; pods of the leading role have it, with the value ``master``.
        index_annotation: key of an annotation that repeats the index; empty: none.
    """

    operator: tuple[str, str]
    job: str
    role: str
    index: str
    attempt: str = "grange.dev/job-attempt"
    leader: str = "grange.dev/job-role"
    index_annotation: str = ""


class JobAdapter(Protocol[R]):
    """Converts one kind of job to what the core works on, and its status back."""

    @property
    def kind(self) -> KindInfo[R]:
        """The kind."""

    @property
    def labels(self) -> JobLabels:
        """The labels of its pods."""

    def manages(self, job: R) -> bool:
        """Whether our controller acts on the job; else nothing of it is written, whatever its spec."""

    def model(self, job: R) -> JobModel:
        """What is wanted.

        Raises:
            InvalidJob: the spec cannot be acted on; becomes a Failed condition.
        """

    def status(self, job: R) -> JobStatus:
        """What was written last."""

    def status_document(self, status: JobStatus) -> Document:
        """The status in the shape of the kind."""

    def pod_name(self, model: JobModel, role: str, index: int) -> str:
        """The name of a pod: the same in every attempt, so that an index never runs twice at once."""
