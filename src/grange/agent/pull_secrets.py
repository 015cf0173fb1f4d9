"""Reads the Secrets that pods name for pulling images."""

from grange.agent import registry_credentials
from grange.agent.image_store import ImagePullError, RegistryCredentials
from grange.api.kinds import SECRET
from grange.api.kinds.pod import Pod
from grange.api.status import ApiError, NotFound
from grange.client.client import Client


class PullSecrets:
    """The credentials of pods for registries. They are read for each pull and kept nowhere.

    Args:
        client: of the node.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def of(self, pod: Pod, reference: str) -> list[RegistryCredentials]:
        """A pod's credentials for an image, in the order of its ``imagePullSecrets``.

        A Secret that is missing gives none, as in Kubernetes: the image may be public.

        Raises:
            ImagePullError: the API cannot be asked.
        """
        names = [str(item.get("name") or "") for item in pod.spec.image_pull_secrets]
        found: list[RegistryCredentials] = []
        for name in filter(None, names):
            data = await self._data(pod.metadata.namespace, name)
            found += registry_credentials.of_secret(data, reference)
        return found

    async def _data(self, namespace: str, name: str) -> dict[str, str]:
        try:
            return dict((await self._client.get(SECRET, name, namespace)).data)
        except NotFound:
            return {}
        except ApiError as error:
            raise ImagePullError(f'Secret "{name}" cannot be read: {error}') from error
