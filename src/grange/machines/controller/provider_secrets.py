"""Credentials that pools name for their providers: Secrets of one namespace."""

import base64
from collections.abc import Mapping

from grange.api.bootstrap_tokens import NAMESPACE
from grange.api.kinds import SECRET
from grange.api.status import ApiError, NotFound
from grange.client.client import Client
from grange.machines.providers import ReadSecret
from grange.machines.providers.provider import MisconfiguredError, ProviderError


def secret_reader(client: Client) -> ReadSecret:
    """Reads Secrets of ``kube-system``.

    The namespace is fixed: the right to write a pool is not the right to use any Secret.
    """

    async def read(name: str) -> Mapping[str, bytes]:
        try:
            found = await client.get(SECRET, name, NAMESPACE)
            return {key: base64.b64decode(text) for key, text in found.data.items()}
        except NotFound as error:
            raise MisconfiguredError(
                f"secret {NAMESPACE}/{name}: there is none; create it"
            ) from error
        except (ApiError, ValueError) as error:
            raise ProviderError(f"secret {name}: {error}; it is read again") from error

    return read
