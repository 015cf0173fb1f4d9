"""A kind is one module and one line: an example is served, checked, printed and installed."""

import msgspec
import pytest

from grange.api import crds, schema_builder
from grange.api.http import User
from grange.api.kinds import BUILT_IN
from grange.api.meta import Document, Resource, View
from grange.api.printing import cells
from grange.api.scheme import AnyKind, Column, KindInfo, Scheme
from grange.api.status import Cause, Invalid, NotFound
from grange.api.validation.causes import Faults
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.sim.api_fixture import ApiFixture, opened

ADMIN = User("grange:admin", ("system:masters",))


class WidgetSpec(View, frozen=True):
    """What is wanted."""

    size: int = 0


class Widget(Resource, frozen=True):
    """Something to try a kind with."""

    spec: WidgetSpec = msgspec.field(default_factory=WidgetSpec)


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    if (size := document.get("spec", {}).get("size", 0)) > 10:
        faults.invalid("spec.size", size, "must be at most 10")
    return faults.causes


_NAME = "dev.example.v1.Widget"
WIDGET = KindInfo(
    group="example.dev",
    version="v1",
    kind="Widget",
    plural="widgets",
    view=Widget,
    schema=_NAME,
    definitions=schema_builder.definitions(
        _NAME,
        "example.dev",
        "v1",
        "Something to try a kind with.",
        spec={"size": schema_builder.whole("How large it is.", minimum=0)},
        status={"conditions": schema_builder.conditions()},
    ),
    short_names=("wd",),
    columns=(Column("Size", cells.integer("spec.size"), type="integer", description="Its size."),),
    validate=_validate,
)


async def served(kinds: tuple[AnyKind, ...], clock: Clock, rng: Stream, log: Logger) -> bool:
    class Server(ApiFixture):
        pass

    Server.kinds = kinds
    async with opened(Server(clock, rng, log, user=ADMIN)) as server:
        client = server.client
        made = {"metadata": {"name": "small"}, "spec": {"size": 3}}
        try:
            assert (await client.create(WIDGET, made, "default")).spec.size == 3
        except NotFound:
            return False
        for size, message in ((11, "must be at most 10"), ("big", "spec.size")):
            wrong = {"metadata": {"name": "wrong"}, "spec": {"size": size}}
            with pytest.raises(Invalid, match=message):
                await client.create(WIDGET, wrong, "default")
        assert len((await client.list(WIDGET)).items) == 1
        return True


async def test_kind_is_one_module_and_one_line(clock: Clock, rng: Stream, log: Logger) -> None:
    """What docs/explanation/architecture.md promises for a kind."""
    assert await served((*BUILT_IN, WIDGET), clock, rng, log)
    assert WIDGET in crds.installable((*BUILT_IN, WIDGET))
    assert Scheme((*BUILT_IN, WIDGET)).named("wd") == WIDGET
    assert not await served(BUILT_IN, clock, rng, log)
