"""Brings images to the node before containers are made from them.

Pulls run concurrently with the workers of pods, a few at a time: a pod that is deleted while its image
comes does not wait for it. A pull that fails is tried again after 10 s, 20 s, … 300 s, as kubelet does.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from grange.agent import pull_remedies
from grange.agent.errors import NotCreatableError
from grange.agent.events import AgentReason
from grange.agent.image_store import ImageInfo, ImagePullError, ImageStore, RegistryCredentials
from grange.api.kinds import POD
from grange.api.kinds.pod import Container, Pod
from grange.base.backoff import Exponential
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.tasks import Child, Nursery
from grange.reconcile.recorder import NORMAL, WARNING, Recorder

ALWAYS, NEVER = "Always", "Never"
CREATING = "ContainerCreating"
PULL_FAILED, BACK_OFF = "ErrImagePull", "ImagePullBackOff"
NEVER_PULLED, INVALID_NAME = "ErrImageNeverPull", "InvalidImageName"

_RETRIES = Exponential(10.0, 300.0)
_AT_ONCE = 3
_LOOK_S = 0.25  # how soon a container whose image comes is tried again
_PROGRESS_S = 5.0
_MIB = 2**20
_SHOWN_S = 2.0  # how long a failure is shown before the wait for the next try is

GiveCredentials = Callable[[Pod, str], Awaitable[Sequence[RegistryCredentials]]]
"""Gives the credentials of a pod for an image; none for an anonymous pull."""


class ImageNotReadyError(NotCreatableError):
    """The image is not there yet; what happened to it has been reported.

    Args:
        message: why, with the image's name.
        reason: for ``state.waiting.reason``.
        retry_s: when to look again.
    """

    def __init__(self, message: str, reason: str, retry_s: float) -> None:
        super().__init__(message, reason)
        self.retry_s = retry_s


@dataclass(slots=True)
class _Pull:
    """What is known of one pod's pulls of one image; ``progress`` is shown behind its name."""

    task: Child[None] | None = None
    is_pulled: bool = False
    failures: int = 0
    due: float = 0.0
    shown: bool = True
    error: ImagePullError | None = None
    progress: str = ""


class ImagePuller:
    """Pulls images for the pods of a node. Works while ``run`` runs.

    Args:
        images: of the node.
        credentials: of pods; raises ``ImagePullError`` where they cannot be read.
        recorder: where Events go.
        clock, log: time and the node's logger.
    """

    def __init__(
        self,
        images: ImageStore,
        credentials: GiveCredentials,
        recorder: Recorder,
        *,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._images = images
        self._credentials = credentials
        self._recorder = recorder
        self._clock = clock
        self._log = log
        self._pulls: dict[tuple[str, str], _Pull] = {}
        self._nursery: Nursery | None = None
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._transfers = 0

    async def run(self) -> None:
        """Pull until cancelled."""
        async with Nursery("image pulls") as nursery:
            self._nursery = nursery
            try:
                await asyncio.Event().wait()
            finally:
                self._nursery = None
                self._pulls.clear()

    async def ensure(self, pod: Pod, container: Container) -> ImageInfo:
        """The image of a container, if a container can be made from it now; else its pull begins or goes on.

        Raises:
            ImageNotReadyError: it is being pulled, or that failed and is tried again later.
            NotCreatableError: it is not there and may not be pulled.
        """
        reference, policy = container.image, container.image_pull_policy
        pull = self._pulls.setdefault((pod.metadata.uid, reference), _Pull())
        if policy != ALWAYS or pull.is_pulled:
            found = await self._find(reference)
            if found is not None:
                pull.is_pulled = False  # the next attempt asks again
                return found
        if policy == NEVER:
            raise NotCreatableError(
                f'image "{reference}" is not on this node and imagePullPolicy is Never; bring '
                "it to the node, or use another policy",
                NEVER_PULLED,
            )
        if pull.task is None or pull.task.done():
            self._check_due(pod, reference, pull)
            if self._nursery is not None:
                work = self._pull(pod, reference, pull, self._nursery)
                pull.task = self._nursery.start(work, name=f"pull {reference}")
        text = f'pulling image "{reference}"{pull.progress}'
        raise ImageNotReadyError(text, CREATING, _LOOK_S)

    def forget(self, pod_uid: str) -> None:
        """The pod is over: what is pulled only for it ends."""
        for key in [key for key in self._pulls if key[0] == pod_uid]:
            pull = self._pulls.pop(key)
            if pull.task is not None:
                pull.task.cancel()

    async def _find(self, reference: str) -> ImageInfo | None:
        try:
            return await self._images.find(reference)
        except ImagePullError as error:
            reason = INVALID_NAME if error.is_invalid_name else PULL_FAILED
            raise NotCreatableError(f'image "{reference}": {error.message}', reason) from error

    def _check_due(self, pod: Pod, reference: str, pull: _Pull) -> None:
        """Check that a pull that failed may be tried again now.

        Raises:
            ImageNotReadyError: not yet.
        """
        left_s = pull.due - self._clock.monotonic()
        if pull.error is None or left_s <= 0:
            return
        why = f'image "{reference}": {pull.error.message}'
        if not pull.shown:
            pull.shown = True
            reason = INVALID_NAME if pull.error.is_invalid_name else PULL_FAILED
            raise ImageNotReadyError(why, reason, min(left_s, _SHOWN_S))
        self._event(pod, AgentReason.BACK_OFF, f'Back-off pulling image "{reference}"')
        raise ImageNotReadyError(f"back-off pulling {why}", BACK_OFF, left_s)

    async def _pull(self, pod: Pod, reference: str, pull: _Pull, nursery: Nursery) -> None:
        async with self._turns:
            self._event(pod, AgentReason.PULLING, f'Pulling image "{reference}"', NORMAL)
            began = self._clock.monotonic()
            try:
                await self._try_each(pod, reference, pull, nursery)
            except ImagePullError as error:
                pull.error, pull.shown = error, False
                pull.failures += 1
                pull.due = self._clock.monotonic() + _RETRIES.delay(pull.failures)
                message = f'Failed to pull image "{reference}": {error.message}'
                self._event(pod, AgentReason.FAILED, message)
                self._log.info("image not pulled", image=reference, error=error.message)
                return
            took_s = self._clock.monotonic() - began
            pull.is_pulled, pull.error, pull.failures = True, None, 0
            message = f'Successfully pulled image "{reference}" in {took_s:.1f} s'
            self._event(pod, AgentReason.PULLED, message, NORMAL)

    async def _try_each(self, pod: Pod, reference: str, pull: _Pull, nursery: Nursery) -> None:
        """Pull with each of the credentials in turn, until one is accepted; without, if there are none."""
        given = await self._credentials(pod, reference)
        self._transfers += 1
        follower = nursery.start(self._follow(pull), name=f"progress of {reference}")
        try:
            for number, credentials in enumerate(given or (None,), 1):
                try:
                    await self._images.pull(reference, credentials)
                except ImagePullError as error:
                    if number >= len(given):
                        why = pull_remedies.with_remedy(error.message, gave_credentials=bool(given))
                        raise ImagePullError(why, is_invalid_name=error.is_invalid_name) from error
                else:
                    return
        finally:
            self._transfers -= 1
            follower.cancel()
            pull.progress = ""

    async def _follow(self, pull: _Pull) -> None:
        """Keep what is shown of a pull up to date until cancelled."""
        began = self._clock.monotonic()
        while True:
            await self._clock.sleep(_PROGRESS_S)
            # What is transferred for which pull is not known.
            found = await self._images.progress() if self._transfers == 1 else None
            amounts = f": {found.done / _MIB:.1f} of {found.total / _MIB:.1f} MiB" if found else ""
            pull.progress = f" for {self._clock.monotonic() - began:.0f} s{amounts}"

    def _event(self, pod: Pod, reason: AgentReason, message: str, kind: str = WARNING) -> None:
        self._recorder.event(pod, kind, reason.value, message, kind=POD)
