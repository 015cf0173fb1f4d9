"""Who may do what: tokens to users, users to rights."""

import pytest
from tests.unit.apiserver.server import PODS, Server, pod

from grange.api.http import ADMIN, ANONYMOUS, Request, User
from grange.api.kinds import BUILT_IN
from grange.api.scheme import Scheme
from grange.apiserver.application import Application
from grange.apiserver.authn import StaticTokens, bearer_token
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.sim.pytest_plugin import Records
from grange.store.memory import MemoryStore

BOB = User("bob", ("system:authenticated",))
BEARER = "a-token-that-nobody-should-see"


def test_known_token_is_its_user_and_authenticated() -> None:
    tokens = StaticTokens({"one": User("a", ("g",)), "two": ADMIN})
    assert tokens.authenticate({"authorization": "Bearer one"}) == User(
        "a", ("g", "system:authenticated")
    )
    assert tokens.authenticate({"authorization": "bearer  two"}) == ADMIN


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Bearer three", "Basic one", "one", "Bearer \udcff", "Bearer ü"],
)
def test_anything_else_is_none(header: str) -> None:
    tokens = StaticTokens({"one": ADMIN, "": ADMIN})
    assert tokens.authenticate({"authorization": header}) is None
    assert tokens.authenticate({}) is None


def test_token_is_what_follows_the_scheme() -> None:
    assert bearer_token({"authorization": "Bearer abc"}) == "abc"


async def test_anonymous_may_ask_for_health_and_version_only(server: Server) -> None:
    for path in ("/healthz", "/livez", "/readyz", "/readyz/ping", "/version"):
        assert (await server.ask("GET", path, user=ANONYMOUS)).code == 200
    for path in ("/api", "/apis", "/metrics", "/openapi/v3", "/", "/versions", PODS):
        answer = await server.ask("GET", path, user=ANONYMOUS)
        assert (answer.code, answer.reason) == (403, "Forbidden")


async def test_authenticated_may_discover_but_not_read(server: Server) -> None:
    for path in ("/api", "/apis/grange.dev/v1alpha1", "/openapi/v3", "/version"):
        assert (await server.ask("GET", path, user=BOB)).code == 200
    answer = await server.ask("GET", f"{PODS}/web", user=BOB)
    assert answer.code == 403
    assert answer.message == (
        'pods "web" is forbidden: User "bob" cannot get resource "pods" in API group "" '
        'in the namespace "default"'
    )
    assert (await server.ask("GET", "/metrics", user=BOB)).code == 403


async def test_what_is_forbidden_is_not_done(server: Server) -> None:
    before = server.store.revision
    assert (await server.ask("POST", PODS, pod(), user=BOB)).code == 403
    assert server.store.revision == before


async def test_application_can_authenticate_by_itself(
    clock: Clock, rng: Stream, log: Logger, records: Records
) -> None:
    application = Application(
        MemoryStore(),
        Scheme(BUILT_IN),
        clock=clock,
        rng=rng,
        log=log,
        authn=StaticTokens({BEARER: ADMIN}),
    )
    await application.bootstrap()

    async def ask(header: str) -> int:
        headers = {"authorization": header} if header else {}
        return (await application.handle(Request("GET", PODS, headers=headers))).status

    assert await ask(f"Bearer {BEARER}") == 200
    assert await ask("Bearer wrong") == 401
    assert await ask("") == 403
    assert BEARER not in str(records)
