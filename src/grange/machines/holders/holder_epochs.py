"""The highest epoch with which each holder's owners have asked for machines: one ConfigMap.

A holder's owners change, and a request of a former one may be long on its way. The highest epoch is
written before anything else is done for a request, at the version that was read, so that of two owners
only the later one goes on.
"""

from grange.api.kinds import CONFIGMAP
from grange.api.kinds.configmap import ConfigMap
from grange.api.machine_claims import EPOCHS_CONFIGMAP, NAMESPACE
from grange.api.meta import Document, preconditions
from grange.api.status import AlreadyExists, Conflict, NotFound
from grange.client.client import Client
from grange.reconcile.machine_pool import StaleRequest

HOLDERS_MAX = 2000
"""More are not remembered: those with the lowest epochs, which spoke longest ago, are forgotten first."""

_TRIES = 8


class HolderEpochs:
    """Remembers epochs.

    Args:
        client: of the API server.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def admit(self, holder: str, epoch: int) -> None:
        """Remember an epoch; lower ones are refused from now on.

        Raises:
            StaleRequest: a higher one is known.
            ApiError: the request failed, and may have succeeded.
        """
        for _ in range(_TRIES):
            found = await self._read()
            try:
                if found is None:
                    first: Document = {
                        "metadata": {"name": EPOCHS_CONFIGMAP},
                        "data": {holder: f"{epoch}"},
                    }
                    await self._client.create(CONFIGMAP, first, NAMESPACE)
                    return
                known = _known(found)
                _refuse_lower(known, holder, epoch)
                if holder in known and known[holder] == epoch:
                    return
                data = {**_forgotten(known), holder: f"{epoch}"}
                patch = {"metadata": preconditions(found.metadata), "data": data}
                await self._client.patch(CONFIGMAP, EPOCHS_CONFIGMAP, NAMESPACE, patch=patch)
            except (AlreadyExists, Conflict, NotFound):
                continue  # read again
            return
        raise Conflict(f"configmap {EPOCHS_CONFIGMAP}: it changes all the time; try again")

    async def check(self, holder: str, epoch: int) -> None:
        """Check that no later owner has asked meanwhile.

        Raises:
            StaleRequest: one has.
            ApiError: it is not known.
        """
        found = await self._read()
        _refuse_lower({} if found is None else _known(found), holder, epoch)

    async def _read(self) -> ConfigMap | None:
        try:
            return await self._client.get(CONFIGMAP, EPOCHS_CONFIGMAP, NAMESPACE)
        except NotFound:
            return None


def _known(found: ConfigMap) -> dict[str, int]:
    """Epochs by holder; one that is no number (edited by a user) refuses nothing."""
    return {holder: int(text) if text.isdecimal() else 0 for holder, text in found.data.items()}


def _refuse_lower(known: dict[str, int], holder: str, epoch: int) -> None:
    highest = known.get(holder, 0)
    if epoch < highest:
        raise StaleRequest(f"epoch {epoch} of {holder} is over: {highest} is on")


def _forgotten(known: dict[str, int]) -> dict[str, None]:
    """Holders to remove so that another one has room."""
    surplus = len(known) + 1 - HOLDERS_MAX
    if surplus <= 0:
        return {}
    return dict.fromkeys(sorted(known, key=lambda holder: (known[holder], holder))[:surplus])
