"""The images of a container runtime."""

from typing import Any

from grange.agent.image_store import ImageInfo, ImagePullError, PullProgress, RegistryCredentials
from grange.agent.runtimes.cri import cri_client
from grange.agent.runtimes.cri.cri_client import CriClient, CriError

_LIST_LIMIT_S = 20.0
_AMOUNTS = ("offset", "total")


class CriImages:
    """Finds and pulls images; see ``ImageStore``.

    Args:
        client: to the runtime.
    """

    def __init__(self, client: CriClient) -> None:
        self._client = client
        self._shows_progress = True

    async def find(self, reference: str) -> ImageInfo | None:
        """The image, if the machine has it; see ``ImageStore``."""
        request = {"image": {"image": reference}}
        try:
            answer = await self._client.call("ImageStatus", request, _LIST_LIMIT_S)
        except CriError as error:
            raise _refused(error) from error
        image = answer.get("image")
        return _info(image) if image else None

    async def pull(self, reference: str, credentials: RegistryCredentials | None) -> None:
        """Bring the image to the machine; see ``ImageStore``."""
        request: dict[str, Any] = {"image": {"image": reference}}
        if credentials is not None:
            request["auth"] = {
                "username": credentials.username,
                "password": credentials.password,
                "identity_token": credentials.identity_token,
                "registry_token": credentials.registry_token,
            }
        try:
            await self._client.call("PullImage", request, None)
        except CriError as error:
            raise _refused(error) from error

    async def progress(self) -> PullProgress | None:
        """How far the transfers are; see ``ImageStore``. Only containerd shows it."""
        if not self._shows_progress:
            return None
        try:
            answer = await self._client.call("ListStatuses", {}, _LIST_LIMIT_S)
        except CriError as error:
            self._shows_progress = error.code != cri_client.UNIMPLEMENTED
            return None
        found = answer.get("statuses") or []
        return PullProgress(*(sum(int(item.get(of, 0)) for item in found) for of in _AMOUNTS))


def _info(image: dict[str, Any]) -> ImageInfo:
    user = image.get("uid")
    return ImageInfo(
        identity=str(image.get("id", "")),
        user=int(user.get("value", 0)) if user is not None else None,
        username=str(image.get("username", "")),
    )


def _refused(error: CriError) -> ImagePullError:
    invalid = error.code == cri_client.INVALID or "invalid reference format" in error.message
    return ImagePullError(error.message, is_invalid_name=invalid)
