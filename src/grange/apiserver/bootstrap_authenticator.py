"""Bootstrap tokens as credentials: a machine that has no certificate yet."""

from collections.abc import Mapping

import msgspec

from grange.api import bootstrap_tokens
from grange.api.http import User
from grange.api.kinds import SECRET
from grange.api.kinds.secret import Secret
from grange.apiserver import storage
from grange.apiserver.authn import bearer_token
from grange.base.clock import Clock
from grange.store.interface import Store

_AUTHENTICATED = "system:authenticated"
_secrets = msgspec.json.Decoder(Secret)


class BootstrapTokens:
    """Turns bootstrap tokens into users.

    Args:
        store: where the Secrets of tokens are.
        clock: wall time.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def authenticate(self, headers: Mapping[str, str]) -> User | None:
        """The user of a token that is kept and has not ended, or None."""
        pair = bootstrap_tokens.parse(bearer_token(headers))
        if pair is None:
            return None
        name = bootstrap_tokens.secret_name(pair[0])
        entry = self._store.latest(storage.key(SECRET, bootstrap_tokens.NAMESPACE, name))
        if entry is None:
            return None
        try:
            token = bootstrap_tokens.read(_secrets.decode(entry.value))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        if token is None or not token.matches(pair[1]) or not token.is_valid(self._clock.now()):
            return None
        groups = dict.fromkeys((bootstrap_tokens.GROUP, *token.groups, _AUTHENTICATED))
        return User(token.user_name, tuple(groups))
