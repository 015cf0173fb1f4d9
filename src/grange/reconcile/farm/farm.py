"""One farm: the objects of a kind, those that are this member's, and the passes over them.

Theory of operation. A plan assigns each object to a member; it is computed from the caches whenever
members, objects or labels have changed. It is only a target. An object becomes ours by a compare and
set on the object itself, which is tried when the object is unowned, or was a session's that is
over; it stops being ours by a release, after the last pass has ended, or with the session. So two
members with different views may both try, but only one of them succeeds, and the one that
acts has the object's own word for it.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Generic, TypeVar

from grange.api.meta import ObjectKey, Resource
from grange.api.selectors import Labels
from grange.base.backoff import Exponential
from grange.base.clock import Clock
from grange.base.tasks import Nursery
from grange.reconcile.controller import Controller, Done, Requeue, Result
from grange.reconcile.deps import Deps
from grange.reconcile.farm.config import TICK_S, FarmConfig
from grange.reconcile.farm.deletion_guard import DeletionGuard
from grange.reconcile.farm.errors import DeletionsHeld, SessionLost
from grange.reconcile.farm.fenced_client import FencedClient, PassFence, at_work
from grange.reconcile.farm.hashing import assign, score
from grange.reconcile.farm.leases import Token
from grange.reconcile.farm.member_session import Session, SessionKeeper, each_session
from grange.reconcile.farm.members import Members, Peer
from grange.reconcile.farm.metrics import instruments
from grange.reconcile.farm.ownership import Claim, claim_patch, owner_text, ownership
from grange.reconcile.informer import Informer
from grange.reconcile.workqueue import rate_limited_queue

R = TypeVar("R", bound=Resource)
Reconcile = Callable[[ObjectKey], Awaitable[Result]]

_RETRY = Exponential(initial_s=0.05, cap_s=5.0)
_SETTLE_S = 0.02  # changes come in bursts; one plan serves many
_SETTLE_SHARE = 10  # planning takes at most a tenth of the time


class _SessionFence:
    """The fence outside of passes: a session, any session."""

    def __init__(self, keeper: SessionKeeper) -> None:
        self._keeper = keeper

    def check(self) -> float:
        session = self._keeper.current
        if session is None:
            raise SessionLost("this member has no session at the moment")
        return session.check()

    def cut_off(self) -> None:
        session = self._keeper.current
        if session is not None:
            session.cut_off()


class _ClockedGuard:
    """The deletion guard with a clock, as the fence asks it."""

    def __init__(
        self, deletion_guard: DeletionGuard, clock: Clock, held: Callable[[], object]
    ) -> None:
        self._guard = deletion_guard
        self._clock = clock
        self._held = held

    def permit_deletion(self, resource: str) -> Callable[[], None]:
        try:
            change = self._guard.permit_deletion(self._clock.monotonic(), resource)
        except DeletionsHeld:
            self._held()
            raise
        return lambda: self._guard.cancel_deletion(change)

    def created(self, resource: str) -> None:
        self._guard.created(self._clock.monotonic(), resource)


class Farm(Generic[R]):
    """This member's share of the objects of one kind; made by ``Member.farm``.

    Args:
        name: of the farm; members share what belongs to farms of one name.
        deps: the tools; ``client`` unfenced.
        config: of the member.
        keeper, members: the member's session and its peers.
        informer: the objects.
        selector: which objects this member wants, by their labels; empty means all.
        reconcile: run for each object that is ours; None where another component reconciles, through
            ``guard``.
        weight: what an object asks for (e.g. replicas), for the deletion guard.
        deletion guard: asked before deletions.
        workers: passes at once, where the farm runs them; the member's setting by default.

    Attributes:
        client: for all writes of passes: refuses those that are not (or no longer) ours to make.
        deps: the tools that were given, with that client.
    """

    def __init__(  # noqa: PLR0913  a farm is where everything meets
        self,
        name: str,
        *,
        deps: Deps,
        config: FarmConfig,
        keeper: SessionKeeper,
        members: Members,
        informer: Informer[R],
        selector: str = "",
        reconcile: Reconcile | None = None,
        weight: Callable[[R], int] | None = None,
        deletion_guard: DeletionGuard,
        workers: int | None = None,
    ) -> None:
        self.name = name
        self.selector = selector
        self._wanted = Labels.parse(selector)
        self._config = config
        self._keeper = keeper
        self._members = members
        self._informer = informer
        self._weight: Callable[[R], int] = weight or (lambda _: 1)
        self._total = 0  # weight of all objects
        self.deletion_guard = deletion_guard
        self._clock = deps.clock
        self._log = deps.log.bind(farm=name, member=config.member)
        self._session: Session | None = None
        self._claims: dict[ObjectKey, Claim] = {}
        self._target: dict[ObjectKey, str] = {}
        self._stripped: dict[ObjectKey, Token] = {}  # owners whose annotation a user removed
        self._uneven_since: float | None = None
        self._versions = [0, 0]
        self._quiet_until = 0.0
        self._wake = asyncio.Event()
        self._moved = True  # members, objects or labels have, since the last plan
        self._loads: dict[str, int] = {}  # objects each member should have, while that is all alike
        self._gained: list[Callable[[ObjectKey], object]] = []
        self._left: list[Callable[[ObjectKey], object]] = []
        self._raw = deps.client
        self._fence = PassFence(_SessionFence(keeper))
        counts = instruments(deps.metrics)
        self._claimed = counts.claims.labels(name)
        self._lost = counts.losses.labels(name)
        self._refused = counts.refusals.labels(name)
        self._held = counts.held.labels(name)
        counts.deletion_guard.labels(name).set_function(lambda: len(deletion_guard.triggers))
        counts.owned.labels(name).set_function(self._claims.__len__)
        self.client = self._fenced(deps)
        self.deps = replace(deps, client=self.client)
        self._settling = Controller(
            f"farm-{name}",
            self._settle,
            queue=rate_limited_queue(deps.clock, _RETRY),
            workers=config.claimers,
            clock=deps.clock,
            rng=deps.rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self._work: Controller | None = None
        if reconcile is not None:
            self._work = Controller(
                name,
                self.guard(reconcile),
                workers=workers or config.workers,
                clock=deps.clock,
                rng=deps.rng,
                log=deps.log,
                metrics=deps.metrics,
            )
            self.on_gain(self._work.enqueue)
        informer.add_handler(self._appeared, self._changed, self._vanished)
        members.add_listener(self._unsettle)

    # --- for those who work -------------------------------------------------------------------

    def fence(self, deps: Deps) -> Deps:
        """The same tools with a client that writes only what is ours to write."""
        return replace(deps, client=self._fenced(deps))

    def _fenced(self, deps: Deps) -> FencedClient:
        return FencedClient(
            deps.client,
            self._fence,
            clock=deps.clock,
            deletion_guard=_ClockedGuard(self.deletion_guard, deps.clock, self._held.inc),
            refused=self._refused.inc,
        )

    def guard(self, reconcile: Reconcile) -> Reconcile:
        """The same reconcile, but only for objects that are ours, and fenced.

        Writes must go through ``client``. A pass is cancelled when its object stops being ours;
        that counts as done.
        """

        async def guarded(key: ObjectKey) -> Result:
            claim = self._claims.get(key)
            if claim is None or not claim.takes_passes:
                return Done()
            results: list[Result] = []
            try:
                async with Nursery(f"{self.name} {key}") as nursery:
                    claim.begin(nursery)
                    nursery.start(_under(claim, reconcile, results), name=f"{self.name} {key}")
            except BaseExceptionGroup as group:
                if len(group.exceptions) == 1:
                    raise group.exceptions[0] from None
                raise
            finally:
                claim.finish()
            return results[0] if results else Done()

        return guarded

    def attach(self, loop: Controller) -> None:
        """Have a controller's loop work on what is ours only, and look at what becomes ours.

        The controller must have been made with this farm's ``deps``, or with what ``fence`` makes;
        before it runs.
        """
        loop.wrap(self.guard)
        self.on_gain(loop.enqueue)

    def on_gain(self, listener: Callable[[ObjectKey], object]) -> None:
        """Register a handler for each object that becomes ours; reconcile it then in any case."""
        self._gained.append(listener)

    def on_loss(self, listener: Callable[[ObjectKey], object]) -> None:
        """Register a handler for each object that is no longer ours, for any reason."""
        self._left.append(listener)

    def holds(self, key: ObjectKey) -> bool:
        """Whether the object is ours now."""
        claim = self._claims.get(key)
        return claim is not None and claim.takes_passes

    def knows(self, key: ObjectKey) -> bool:
        """Whether the object is there, as far as we see."""
        return key in self._informer.store

    def wants(self, obj: Resource) -> bool:
        """Whether this member's selector matches the object."""
        return self._wanted.matches(obj.metadata.labels)

    def held(self) -> list[ObjectKey]:
        """The objects that are ours now."""
        return [key for key, claim in self._claims.items() if claim.takes_passes]

    async def run(self) -> None:
        """Claim, work and release until cancelled, under one session after another."""
        await self._informer.synced.wait()
        await self._members.synced.wait()
        await each_session(self._keeper, self._serve, name=f"farm {self.name}")

    async def _serve(self, session: Session) -> None:
        self._session = session
        try:
            async with Nursery(f"farm {self.name}") as nursery:
                nursery.start(self._settling.run(), name=f"farm {self.name} claims")
                if self._work is not None:
                    nursery.start(self._work.run(), name=f"farm {self.name} work")
                await self._clock.sleep(self._config.gather_s)
                await self._keep_planning(session)
        finally:
            # Writes are refused from here on, also those under way. The objects keep our name:
            # it means nothing without the session.
            for claim in list(self._claims.values()):
                self._lose(claim)
            self._target.clear()
            self._loads.clear()
            self._moved = True
            self._session = None

    # --- whose should what be -----------------------------------------------------------------

    async def _keep_planning(self, session: Session) -> None:
        while True:
            self._wake.clear()
            started = self._clock.monotonic()
            due = self._plan(session, started) if self._moved else self._report_view(started)
            took_s = self._clock.monotonic() - started
            await self._clock.sleep(max(_SETTLE_S, took_s * _SETTLE_SHARE))
            try:
                left = None if due is None else max(TICK_S, due - self._clock.monotonic())
                async with self._clock.timeout(left):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _plan(self, session: Session, now: float) -> float | None:
        """Decide whose each object should be and have the differences dealt with.

        Returns:
            When to plan again even without news.
        """
        dues = [self._report_view(now)]
        if now < self._quiet_until:
            return min(due for due in (*dues, self._quiet_until) if due is not None)
        self._moved = False
        peers = self._peers(session)
        self._target = self._assign(peers)
        me = self._config.member
        moving = []
        for obj in self._informer.store:
            key = obj.key
            mine, held = self._target.get(key) == me, key in self._claims
            if held and not mine and self.wants(obj):
                moving.append(key)
            elif mine != held or (not mine and self._owner(obj) == session.token):
                self._settling.enqueue(key)
        dues.append(self._move(moving, now))
        return min((due for due in dues if due is not None), default=None)

    def _move(self, keys: list[ObjectKey], now: float) -> float | None:
        """Give objects up for evenness, once it has been wanted for long enough; when that is."""
        if not keys:
            self._uneven_since = None
            return None
        if self._uneven_since is None:
            self._uneven_since = now
        due = self._uneven_since + self._config.rebalance_after_s
        for key in keys:
            if now < due:
                self._target[key] = self._config.member
            else:
                self._settling.enqueue(key)
        if now >= due:
            return None
        self._moved = True
        return due

    def _peers(self, session: Session) -> list[Peer]:
        """The members of this farm; our own Lease may not have come back to us yet."""
        own = Peer(session.token, self._wanted)
        others = [peer for peer in self._members.peers(self.name) if peer.name != own.name]
        return [*others, own]

    def _assign(self, peers: list[Peer]) -> dict[ObjectKey, str]:
        """Objects that the same members want are shared among them evenly."""
        holders = {peer.token: peer.name for peer in peers}
        selective = any(not peer.selector.empty for peer in peers)
        all_members = tuple(peer.name for peer in peers)
        classes: dict[tuple[str, ...], dict[ObjectKey, str]] = {}
        for obj in self._informer.store:
            names = all_members
            if selective:
                labels = obj.metadata.labels
                names = tuple(peer.name for peer in peers if peer.selector.matches(labels))
            token = self._owner(obj)
            holder = holders.get(token, "") if token is not None else ""
            classes.setdefault(names, {})[obj.key] = holder
        target: dict[ObjectKey, str] = {}
        for names, owners in classes.items():
            target.update(assign(owners, names))
        self._loads = (
            {} if selective else {**dict.fromkeys(all_members, 0), **Counter(target.values())}
        )
        return target

    def _place(self, key: ObjectKey) -> None:
        """Assign a new object at once, as the next plan will, which it need not wait for."""
        if self._session is None or not self._loads or key in self._target:
            return
        least = min(self._loads.values())
        room = [member for member, load in self._loads.items() if load == least]
        chosen = max(room, key=lambda member: (score(member, key), member))
        self._loads[chosen] += 1
        self._target[key] = chosen
        if chosen == self._config.member:
            self._settling.enqueue(key)

    def _owner(self, obj: R) -> Token | None:
        """The owner by the object's annotation, or before a user removed the annotation."""
        if owner_text(obj) is None:
            return self._stripped.get(obj.key)
        return ownership(obj)

    # --- one object: claim it, leave it, give it up ---------------------------------------------

    async def _settle(self, key: ObjectKey) -> Result:
        session, obj = self._session, self._informer.store.get(key)
        if session is None or obj is None:
            return Done()
        mine = self._target.get(key) == self._config.member
        claim = self._claims.get(key)
        if claim is not None:
            if not mine:
                await self._retire(claim)
                await self._write_owner(session, key, None)
            return Done()
        owner = self._owner(obj)
        if not mine:
            if owner == session.token:
                await self._write_owner(session, key, None)
            return Done()
        now = self._clock.monotonic()
        self._notice_restore(now)
        if now < self._quiet_until:
            return Requeue(self._quiet_until - now)
        if owner is not None and owner != session.token:
            if self._members.is_live(owner):
                return Done()  # it will let go, or its session will end: both wake us
            if not await self._members.is_over(owner):
                return Requeue(self._config.retry_s)
        answer = await self._write_owner(session, key, session.token, seen=obj)
        if answer is not None:
            self._gain(Claim(answer, session))
        return Done()

    async def _write_owner(
        self, session: Session, key: ObjectKey, owner: Token | None, *, seen: R | None = None
    ) -> R | None:
        """Compare and set the owner; None if there is nothing to set it on any more.

        Raises:
            Conflict: the object has changed since our cache saw it.
            SessionLost: the session has ended.
        """
        obj = seen or self._informer.store.get(key)
        if obj is None or (owner is None and ownership(obj) != session.token):
            return None
        client = FencedClient(self._raw, session, clock=self._clock)
        answer = await client.patch(
            self._informer.kind, key.name, key.namespace, patch=claim_patch(obj, owner)
        )
        session.check()
        return answer

    def _gain(self, claim: Claim) -> None:
        shown = self._informer.store.get(claim.key)
        if shown is None or claim.is_contradicted_by(shown):
            return  # deleted or taken while the answer was on its way
        self._claims[claim.key] = claim
        self._claimed.inc()
        self._stripped.pop(claim.key, None)
        self._log.debug("claimed", key=str(claim.key), epoch=claim.session.token.epoch)
        for listener in self._gained:
            listener(claim.key)

    async def _retire(self, claim: Claim) -> None:
        """Let the pass under way end, or end it; afterwards nothing is written under the claim."""
        claim.retire()
        try:
            async with self._clock.timeout(self._config.handover_s):
                await claim.idle.wait()
        except TimeoutError:
            self._log.warning("pass cancelled for a handover", key=str(claim.key))
        self._lose(claim)
        await claim.idle.wait()
        await self._clock.sleep(claim.unsettled_until - self._clock.monotonic())

    def _lose(self, claim: Claim) -> None:
        claim.close()
        if self._claims.get(claim.key) is claim:
            del self._claims[claim.key]
            self._lost.inc()
            for listener in self._left:
                listener(claim.key)

    # --- news ---------------------------------------------------------------------------------

    def _unsettle(self) -> None:
        self._moved = True
        self._wake.set()

    def _appeared(self, obj: R) -> None:
        self._total += self._weight(obj)
        self._place(obj.key)
        self._unsettle()

    def _changed(self, old: R, new: R) -> None:
        claim = self._claims.get(new.key)
        if claim is not None and claim.is_contradicted_by(new):
            self._log.warning("claim lost", key=str(new.key), owner=owner_text(new))
            self._lose(claim)
        if owner_text(old) != owner_text(new):
            owner = ownership(old)
            if owner_text(new) is None and owner is not None:
                self._stripped[new.key] = owner
            else:
                self._stripped.pop(new.key, None)
            if claim is None or ownership(new) != claim.session.token:
                self._unsettle()
        elif old.metadata.labels != new.metadata.labels:
            self._unsettle()
        heavier = self._weight(new) - self._weight(old)
        if heavier:
            self._total += heavier
            self._wake.set()  # the deletion guard's business alone

    def _vanished(self, obj: R) -> None:
        self._total -= self._weight(obj)
        self._stripped.pop(obj.key, None)
        self._target.pop(obj.key, None)
        claim = self._claims.get(obj.key)
        if claim is not None:
            self._lose(claim)
        self._unsettle()

    # --- deletion guard -----------------------------------------------------------------------------

    def _report_view(self, now: float) -> float | None:
        """Show the deletion guard what we see; when it wants to look again."""
        self._notice_restore(now)
        self.deletion_guard.see(
            now,
            objects=len(self._informer.store),
            weight=self._total,
            version=self._informer.resource_version,
        )
        return self.deletion_guard.tick(now)

    def _notice_restore(self, now: float) -> None:
        """After a restore, sessions that go on may be unknown to the store: claim nothing for a term."""
        shown = (self._informer.resource_version, self._members.resource_version)
        for place, version in enumerate(shown):
            if not version.isdecimal():
                continue
            if int(version) < self._versions[place]:
                self._log.warning("the store went back: no claims for a while", farm=self.name)
                self._quiet_until = now + self._config.ttl_s
            self._versions[place] = int(version)

    def resume(self) -> None:
        """An operator confirms the present state."""
        self.deletion_guard.resume(self._clock.monotonic())
        self._wake.set()


async def _under(claim: Claim, reconcile: Reconcile, results: list[Result]) -> None:
    """One pass; the task is its own context, so the claim is its own and its children's."""
    at_work.set(claim)
    results.append(await reconcile(claim.key))
