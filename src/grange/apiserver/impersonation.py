"""Requests that ask to be served as another user: the headers ``Impersonate-*``."""

from collections.abc import Mapping

from grange.api.http import ANONYMOUS, User
from grange.api.status import BadRequest, Forbidden
from grange.apiserver.authorization.authorizer import (
    AuthorizationAttributes,
    Authorizer,
    check,
)

_PREFIX = "impersonate-"
_USER = "impersonate-user"
_GROUP = "impersonate-group"
_GROUPS_MAX = 100  # every one costs a decision, which holds the event loop
_ACCOUNT = "system:serviceaccount:"
_ACCOUNTS = "system:serviceaccounts"
_AUTHENTICATED = "system:authenticated"
_UNAUTHENTICATED = "system:unauthenticated"


def effective_user(user: User, headers: Mapping[str, str], authorizer: Authorizer) -> User:
    """The user as whom a request is served: its sender, or whom it impersonates.

    Args:
        user: who sends the request.
        headers: of the request, in any case; a name may be there more than once.
        authorizer: decides on the verb ``impersonate``.

    Raises:
        BadRequest: the headers name no user, two, or malformed names.
        Forbidden: the sender may not impersonate the user or one of the groups, or the headers ask
            for what users do not have here. Ignoring such a header would serve a deliberately
            restricted request with more rights.
    """
    asked: list[tuple[str, str]] = []
    for name in headers:
        if name[:1] in "iI" and name.lower().startswith(_PREFIX):
            asked = [(key.lower(), value.strip()) for key, value in headers.items()]
            break
    else:
        return user
    names = [value for key, value in asked if key == _USER]
    groups = [value for key, value in asked if key == _GROUP]
    for key, _ in asked:
        if key.startswith(_PREFIX) and key not in {_USER, _GROUP}:
            raise Forbidden(
                f"the header {key[:64]} is refused: users have a name and groups only; "
                "send the request without it"
            )
    if len(names) != 1:
        raise BadRequest(f"impersonation needs one Impersonate-User header, not {len(names)}")
    if len(groups) > _GROUPS_MAX:
        raise BadRequest(
            f"too many Impersonate-Group headers: {len(groups)}; send at most {_GROUPS_MAX}"
        )
    if not all(value and value.isprintable() for value in (*names, *groups)):
        raise BadRequest("impersonated users and groups must be printable names, not empty")
    return _checked(user, names[0], groups, authorizer)


def _checked(user: User, name: str, groups: list[str], authorizer: Authorizer) -> User:
    account = account_of(name)
    if account is None:
        check(authorizer, _attributes(user, "users", "", name))
    else:
        check(authorizer, _attributes(user, "serviceaccounts", *account))
    for group in groups:
        check(authorizer, _attributes(user, "groups", "", group))
    if account is not None and not groups:
        groups = [_ACCOUNTS, f"{_ACCOUNTS}:{account[0]}"]
    if name == ANONYMOUS.name:
        groups = [*groups, _UNAUTHENTICATED]
    elif _UNAUTHENTICATED not in groups:
        groups = [*groups, _AUTHENTICATED]
    return User(name, tuple(dict.fromkeys(groups)))


def account_of(name: str) -> tuple[str, str] | None:
    """Namespace and name of the service account that a user is; None for other users."""
    namespace, colon, account = name.removeprefix(_ACCOUNT).partition(":")
    if not name.startswith(_ACCOUNT) or not (namespace and colon and account):
        return None
    return (namespace, account) if ":" not in account else None


def _attributes(user: User, resource: str, namespace: str, name: str) -> AuthorizationAttributes:
    return AuthorizationAttributes(
        user, "impersonate", resource=resource, namespace=namespace, name=name
    )
