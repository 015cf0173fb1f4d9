"""Which images sessions may run."""

from grange.api import codec
from grange.api.kinds.testsession import TestSession
from grange.api.session_components import component_lists, template_of
from grange.controllers.testsession.library.library_errors import InvalidSessionError


class ImageValidator:
    """Accepts sessions whose images all begin with a prefix.

    Args:
        image_name_prefix: with its last slash, or ``registry/team-b`` would pass for
            ``registry/team``; empty accepts all.
    """

    def __init__(self, image_name_prefix: str = "") -> None:
        self._prefix = image_name_prefix

    def validate(self, session: TestSession) -> None:
        """Check the images of all components, in the order of the session's fields.

        Raises:
            InvalidSessionError: there is no driver, or of the first image that does not fit.
        """
        if session.spec.driver is None:
            raise InvalidSessionError("spec.driver: is missing; its outcome is the verdict")
        for path, component in component_lists(codec.to_document(session.spec)):
            spec = template_of(component).get("spec") or {}
            for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
                image = container.get("image") or ""
                if not image.startswith(self._prefix):
                    raise InvalidSessionError(
                        f'{path}.image: "{image}" does not begin with "{self._prefix}"; '
                        "use an image of this registry"
                    )
