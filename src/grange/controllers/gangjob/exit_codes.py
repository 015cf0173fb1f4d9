"""Which exit codes the restart policy ``ExitCode`` restarts.

| code | decision | why |
|---|---|---|
| 1, 2, 126, 127, 128 and all up to 128 | permanent | a mistake of the program or of its command |
| 130, 137, 138, 143 | retryable | SIGINT, SIGKILL, the code that users choose (SIGUSR1), SIGTERM |
| 139 | permanent | SIGSEGV: the program is broken |
| 129 to 192, but 139 | retryable | ended by another signal |
| 193 to 255 | permanent | no signal |
| none | retryable | no program ended: the pod was evicted or not admitted by its node |
"""

from grange.api.meta import Document
from grange.controllers.gangjob.model import JobPod, JobRole

_FIRST_SIGNAL = 129
_LAST_SIGNAL = 192
_SEGMENTATION_FAULT = 139


def is_retryable(code: int | None) -> bool:
    """Whether a pod that ended with this code is worth another attempt.

    Args:
        code: of the container that counts; None where no container ended.
    """
    if code is None:
        return True
    return _FIRST_SIGNAL <= code <= _LAST_SIGNAL and code != _SEGMENTATION_FAULT


def deciding_code(role: JobRole, pod: JobPod) -> int | None:
    """The exit code that stands for the pod.

    It is that of the framework's container (else of the first one), and where that one succeeded the
    first other that is not zero. None where no container ended.
    """
    own = pod.exit_codes.get(role.container or _first_container(role.template))
    if own:
        return own
    return next((code for code in pod.exit_codes.values() if code), own)


def _first_container(template: Document) -> str:
    containers = (template.get("spec") or {}).get("containers") or [{}]
    return str(containers[0].get("name", ""))
