"""What users do to controllers in the middle of everything."""

from collections.abc import Callable
from contextlib import suppress

from tests.unit.cli import sessions

from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.meta import Document
from grange.api.rollouts import NoSuchRevision, pause_patch, revision_to_undo
from grange.api.status import AlreadyExists, ApiError
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli.verbs.rc import objects
from grange.sim.world import World

NAMESPACE = "default"


class Users:
    """Wishes for some controllers, drawn from their own stream.

    Args:
        world: where.
        draw: the stream.
        names: of the controllers.
        most: replicas that are asked for at most; one at least.
        fewer: called with a controller's name and number before fewer replicas are asked for.
    """

    def __init__(
        self,
        world: World,
        draw: Stream,
        names: tuple[str, ...],
        *,
        most: int = 4,
        fewer: Callable[[str, int], None] = lambda name, replicas: None,
    ) -> None:
        self._world = world
        self._client = world.client
        self._draw = draw
        self._names = names
        self._most = most
        self._fewer = fewer
        self._session = sessions.opened(
            world.client, clock=world.clock, rng=draw, log=Logger("users")
        )

    async def scale(self) -> None:
        """Another number of replicas."""
        name, replicas = self._draw.choice(self._names), self._draw.integer(1, self._most)
        self._fewer(name, replicas)
        await self._patch(name, {"spec": {"replicas": replicas}})

    async def pause(self) -> None:
        """A rollout, or the whole controller, is to wait; or to go on."""
        name, paused = self._draw.choice(self._names), self._draw.choice([True, False])
        whole: Document = {"spec": {"paused": paused}}
        await self._patch(name, self._draw.choice([whole, pause_patch(paused=paused)]))

    async def undo(self) -> None:
        """Back to the template before."""
        name = self._draw.choice(self._names)
        with suppress(ApiError, NoSuchRevision):
            found = await self._client.get(REPLICATIONCONTROLLER, name, NAMESPACE)
            wanted = found.status.rollout.spec_hash if found.status.rollout else ""
            revision = revision_to_undo(found.status.history, wanted)
            self._world.network.note("user", f"undoes {name} to {revision.revision}")
            await objects.set_template(self._session, found, revision.template)

    async def create_again(self) -> None:
        """A controller is deleted without its pods and created again under its name, as it was."""
        name = self._draw.choice(self._names)
        try:
            was = await self._client.get_document(REPLICATIONCONTROLLER, name, NAMESPACE)
            uid = was["metadata"]["uid"]
            await self._client.delete(
                REPLICATIONCONTROLLER,
                name,
                NAMESPACE,
                uid=uid,
                resource_version=was["metadata"]["resourceVersion"],
                propagation="Orphan",
            )
        except ApiError:
            return
        self._world.network.note("user", f"deletes {name} but not its pods")
        again: Document = {
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": was["spec"],
        }
        while not await self._created(again, uid):
            await self._world.clock.sleep(0.5)
        self._world.network.note("user", f"creates {name} again")

    async def _created(self, document: Document, before: str) -> bool:
        """Whether there is another of the name than the one before."""
        name = document["metadata"]["name"]
        try:
            await self._client.create(REPLICATIONCONTROLLER, document, NAMESPACE)
        except AlreadyExists:
            with suppress(ApiError):
                found = await self._client.get(REPLICATIONCONTROLLER, name, NAMESPACE)
                return found.metadata.uid != before
            return False
        except ApiError:
            return False
        return True

    async def _patch(self, name: str, patch: Document) -> None:
        with suppress(ApiError):  # the server is away: the wish stays what it was
            await self._client.patch(REPLICATIONCONTROLLER, name, NAMESPACE, patch=patch)
            self._world.network.note("user", f"wants of {name}: {patch['spec']}")
