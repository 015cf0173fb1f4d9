"""Frameworks: how members of a job are wired. One module and one line each, and a name in the API."""

from grange.controllers.gangjob.errors import InvalidJob
from grange.controllers.gangjob.frameworks import generic, jax, mpi, pytorch, tensorflow, xgboost
from grange.controllers.gangjob.frameworks.framework import Framework, PodAdditions, with_port
from grange.controllers.gangjob.model import JobModel

NO_FRAMEWORK = Framework("", lambda _: PodAdditions())
"""Adds nothing: pods that know nothing of each other."""

FRAMEWORKS: dict[str, Framework] = {
    item.name: item
    for item in (
        NO_FRAMEWORK,
        generic.FRAMEWORK,
        tensorflow.FRAMEWORK,
        pytorch.FRAMEWORK,
        mpi.FRAMEWORK,
        jax.FRAMEWORK,
        xgboost.FRAMEWORK,
    )
}
"""By ``spec.framework``."""


def framework_of(model: JobModel) -> Framework:
    """The job's framework.

    Raises:
        InvalidJob: there is no framework of that name.
    """
    found = FRAMEWORKS.get(model.framework)
    if found is None:
        names = ", ".join(name for name in FRAMEWORKS if name)
        raise InvalidJob(f'spec.framework: "{model.framework}" is not known; use one of {names}')
    return found


def completed(model: JobModel) -> JobModel:
    """The model with what its framework fills in: the named port, and the parts of roles.

    Raises:
        InvalidJob: the framework is not known, or a template lacks its container.
    """
    framework = framework_of(model)
    if framework.port_name:
        model = with_port(model, framework.port_name, framework.port)
    return framework.complete(model)
