"""Client certificates and bootstrap tokens: whom they name, and that they make no administrator."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.apiserver.server import Server

from grange.api import bootstrap_tokens
from grange.api.bootstrap_tokens import BootstrapToken
from grange.apiserver.bootstrap_authenticator import BootstrapTokens
from grange.apiserver.client_certificates import identify, node_of
from grange.base.clock import Clock

SECRETS = "/api/v1/namespaces/kube-system/secrets"
UNTIL = "Jan  1 00:00:00 2027 GMT"


def certificate(**parts: str) -> dict[str, Any]:
    return {
        "subject": tuple(((field, value),) for field, value in parts.items()),
        "notAfter": UNTIL,
    }


def test_node_certificate_names_its_node() -> None:
    found = identify(certificate(organizationName="system:nodes", commonName="system:node:a"))
    assert found is not None
    assert found.user.groups == ("system:nodes", "system:authenticated")
    assert node_of(found.user) == "a"
    assert datetime.fromtimestamp(found.until, UTC) == datetime(2027, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "subject",
    [
        {},
        {"commonName": "system:node:a"},
        {"commonName": "system:node:", "organizationName": "system:nodes"},
        {"commonName": "admin", "organizationName": "system:masters"},
        {"commonName": "system:node:a", "organizationName": "system:masters"},
        {"commonName": "system:apiserver", "organizationName": "system:masters"},
        {"commonName": "grange-apiserver"},
        {"commonName": "system:node:a", "organizationName": "system:nodes", "countryName": "X"},
    ],
)
def test_other_subjects_are_no_users(subject: dict[str, str]) -> None:
    assert identify(certificate(**subject)) is None
    assert identify(None) is None


async def put(server: Server, **fields: Any) -> None:
    token = BootstrapToken("abcdef", "0123456789abcdef", **fields)
    await server.made(SECRETS, bootstrap_tokens.document(token))


def user_of(server: Server, clock: Clock, token: str) -> str:
    headers = {"authorization": f"Bearer {token}"}
    found = BootstrapTokens(server.store, clock).authenticate(headers)
    return found.name if found is not None else ""


async def test_bootstrap_token_is_a_user_until_it_ends(server: Server, clock: Clock) -> None:
    await put(server, expires=clock.now() + timedelta(hours=1), groups=("system:bootstrappers:x",))
    assert user_of(server, clock, "abcdef.0123456789abcdef") == "system:bootstrap:abcdef"
    for wrong in ("abcdef.0123456789abcdeX", "abcdeg.0123456789abcdef", "abcdef.", "", "a.b"):
        assert user_of(server, clock, wrong) == ""
    await clock.sleep(3601)
    assert user_of(server, clock, "abcdef.0123456789abcdef") == ""


@pytest.mark.parametrize(
    "change",
    [
        {"type": "Opaque"},
        {"data": {"usage-bootstrap-authentication": "ZmFsc2U="}},
        {"data": {"expiration": "YQ=="}},
        {"data": {"auth-extra-groups": "c3lzdGVtOm1hc3RlcnM="}},
        {"data": {"node-name": "Xw=="}},
        {"data": {"token-id": "eHh4eHh4"}},
        {"data": {"token-secret": None}},
    ],
)
async def test_malformed_token_is_no_credential(
    server: Server, clock: Clock, change: dict[str, Any]
) -> None:
    document = bootstrap_tokens.document(BootstrapToken("abcdef", "0123456789abcdef"))
    plain = document.pop("stringData")
    body = {**document, "stringData": plain, "type": change.get("type", document["type"])}
    await server.made(SECRETS, body)
    if "data" in change:
        await server.patch(f"{SECRETS}/bootstrap-token-abcdef", change)
    assert user_of(server, clock, "abcdef.0123456789abcdef") == ""
