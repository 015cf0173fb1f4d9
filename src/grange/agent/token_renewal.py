"""Renews the tokens in the volumes of a running pod before they end.

The token that every pod has is good for a year and is left alone. Others are asked for again when four
fifths of the shortest life have passed, as kubelet does, and written with the pod's other volumes: ConfigMaps and
Secrets in them are brought up to date by that, too.
"""

from datetime import datetime, timedelta

from grange.agent import service_account
from grange.agent.container_start import ContainerStarter
from grange.agent.errors import NotCreatableError
from grange.api.kinds.pod import Pod
from grange.base.backoff import Exponential
from grange.base.log import Logger

_SHARE = 0.8
_RETRIES = Exponential(5.0, 300.0)


class TokenRenewal:
    """The renewal of one pod's tokens.

    Args:
        pod: whose volumes ask for them.
        starter: fetches and writes them.
        log: of the pod.
    """

    def __init__(self, pod: Pod, starter: ContainerStarter, log: Logger) -> None:
        self._life_s = min(service_account.short_lives_s(pod), default=None)
        self._starter = starter
        self._log = log
        self._failures = 0
        self._due: datetime | None = None

    def written(self, now: datetime) -> None:
        """The volumes were written, with fresh tokens."""
        if self._life_s is not None:
            self._failures = 0
            self._due = now + timedelta(seconds=self._life_s * _SHARE)

    async def step(self, pod: Pod, now: datetime) -> datetime | None:
        """Renew what is due; of a pod that was taken over that is everything, as its age is not known.

        Returns:
            When to look again; None for never.
        """
        if self._life_s is None:
            return None
        if self._due is not None and now < self._due:
            return self._due
        try:
            await self._starter.renew(pod)
        except NotCreatableError as error:
            self._failures += 1
            self._log.warning("tokens not renewed", error=str(error))
            self._due = now + timedelta(seconds=_RETRIES.delay(self._failures))
        else:
            self.written(now)
        return self._due
