"""Images of a scripted machine: a registry, and what has been pulled from it."""

from grange.agent.image_store import ImageInfo, ImagePullError, RegistryCredentials
from grange.base.clock import Clock


class FakeImages:
    """A machine's images and the registry that others come from; see ``ImageStore``.

    Args:
        clock: time.
        pull_s: how long a pull takes.

    Attributes:
        registry: images by the names under which they can be pulled.
        here: those that the machine has.
        passwords: that the registry asks for, by name of the image.
        pulls: what was asked for, in order, with the user name that was given.
        failure: the registry refuses everything for this reason; empty for none.
    """

    def __init__(self, clock: Clock, pull_s: float = 1.0) -> None:
        self._clock = clock
        self._pull_s = pull_s
        self.registry: dict[str, ImageInfo] = {}
        self.here: dict[str, ImageInfo] = {}
        self.passwords: dict[str, str] = {}
        self.pulls: list[tuple[str, str]] = []
        self.failure = ""

    async def find(self, reference: str) -> ImageInfo | None:
        """The image of that name, if the machine has it."""
        if " " in reference:
            raise ImagePullError("invalid reference format", is_invalid_name=True)
        return self.here.get(reference)

    async def pull(self, reference: str, credentials: RegistryCredentials | None) -> None:
        """Bring an image of the registry to the machine."""
        self.pulls.append((reference, credentials.username if credentials else ""))
        await self._clock.sleep(self._pull_s)
        if self.failure:
            raise ImagePullError(self.failure)
        wanted = self.passwords.get(reference, "")
        if wanted and (credentials is None or credentials.password != wanted):
            raise ImagePullError("pull access denied")
        if reference not in self.registry:
            raise ImagePullError("not found")
        self.here[reference] = self.registry[reference]

    async def list(self) -> list[ImageInfo]:
        """The images of the machine."""
        return list(self.here.values())
