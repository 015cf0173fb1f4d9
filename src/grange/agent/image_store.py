"""The seam to whatever has images: which are there, and how others come."""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from grange.base.errors import GrangeError


class ImagePullError(GrangeError):
    """The image could not be found out about or pulled.

    Args:
        message: the runtime's.
        is_invalid_name: no image can have this name.
    """

    def __init__(self, message: str, *, is_invalid_name: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.is_invalid_name = is_invalid_name


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """An image of the machine.

    Attributes:
        identity: the runtime's name for it, a digest.
        user: that its programs run as; None where the image has a name for it, or nothing.
        username: the name for it.
    """

    identity: str
    user: int | None = None
    username: str = ""


@dataclass(frozen=True, slots=True)
class RegistryCredentials:
    """What a registry is given."""

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    registry_token: str = field(default="", repr=False)


class PullProgress(NamedTuple):
    """What has been transferred of images that are being pulled, in bytes; layers that wait do not count."""

    done: int
    total: int


class ImageStore(Protocol):
    """The images that containers can be made from."""

    async def find(self, reference: str) -> ImageInfo | None:
        """The image of that name, if the machine has it.

        Raises:
            ImagePullError: it cannot be found out, or the name is none.
        """

    async def pull(self, reference: str, credentials: RegistryCredentials | None) -> None:
        """Bring the image to the machine, or its newest version.

        Raises:
            ImagePullError: it cannot be pulled.
        """

    async def progress(self) -> PullProgress | None:
        """How far the transfers are that go on, of all pulls; None where that is not known."""
