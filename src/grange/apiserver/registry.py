"""The generic write path: every kind is created, changed and deleted by this code and no other.

Theory of operation. A write reads the newest *accepted* state, computes the new document, checks it
and hands it to the store, all without an await; so the compare-and-swap that the store makes cannot
fail except on the caller's own preconditions, and nothing needs to be tried again. Only documents that
are large are computed off the event loop, and computed again if the object changed meanwhile. Only the
acknowledgement, that the write is on disk, is awaited. Each write decodes what it was given once and
encodes what it stores once.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from ipaddress import IPv4Network
from typing import NamedTuple

import msgspec

from grange.api import codec
from grange.api.kinds import LEASE, POD, SERVICE
from grange.api.meta import Document
from grange.api.scheme import AnyKind, Scheme
from grange.api.status import ApiError
from grange.api.validation import validate
from grange.apiserver import deletion, metadata, storage
from grange.apiserver.admission import AdmissionPlugin, Attributes, Mutation
from grange.apiserver.conformance import conform, conforms_without_spec, refuse
from grange.apiserver.lease_renewal import renewed
from grange.apiserver.node_capacity import NodeCapacity
from grange.apiserver.object_parts import Part, main_part, status_part
from grange.apiserver.pod_spec_cache import PodSpecCache, SentPod
from grange.apiserver.service_allocation import DEFAULT_NETWORK, ServiceAllocator
from grange.apiserver.storage import Work
from grange.apiserver.unreadable import UnreadableObjects
from grange.apiserver.write_options import IGNORE, DeleteOptions, WriteOptions
from grange.base.clock import Clock
from grange.base.offload import Inline, Offload
from grange.base.rng import Stream
from grange.store.errors import StoreError
from grange.store.interface import Entry, Store, Write

# A node's agent reports its status with the registration; everything else starts without one.
_STATUS_ON_CREATE = frozenset({("", "nodes")})
_GENERATE_ATTEMPTS = 8  # as in Kubernetes
LARGE_BYTES = 32 * 1024
"""What is larger is prepared off the event loop; so is what is smaller and has many values."""
_LARGE_VALUES = 512
_SMALL_BYTES = 1_024
_REVISIONS_MAX = 5
_ADMISSION_CHANGED = "what it refers to changed while it was checked; please try again"


def is_large(body: bytes) -> bool:
    """Whether a document is prepared off the event loop, which it might hold for too long."""
    size = len(body)
    return size > LARGE_BYTES or (size > _SMALL_BYTES and codec.count_values(body) > _LARGE_VALUES)


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where an object is or shall be.

    Attributes:
        info: its kind.
        namespace: empty for cluster-scoped kinds.
        name: empty where the object names itself.
    """

    info: AnyKind
    namespace: str
    name: str = ""

    @property
    def key(self) -> str:
        """The key in the store."""
        return storage.key(self.info, self.namespace, self.name)


class Written(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a write.

    Attributes:
        value: the object's bytes as they are stored now; for a deletion the last ones.
        warnings: for the ``Warning`` headers.
        removed: whether the object is gone.
    """

    value: bytes
    warnings: tuple[str, ...] = ()
    removed: bool = False


class Rewrite(msgspec.Struct, frozen=True):
    """A change that the server makes itself, for a request that is not the object.

    Attributes:
        place: the object.
        attempt: what admission is asked about.
        change: gives the new document from the old, which it must not change; it keeps the order
            of the fields and the metadata that only the server sets. The members of the spec are
            raw (see ``storage.decode_outline``).
        uid: only the object with this uid; empty for any.
        version: only at this resourceVersion; empty for any.
    """

    place: Place
    attempt: Attributes
    change: Callable[[Document], Document]
    uid: str = ""
    version: str = ""


class _Revised(NamedTuple):
    """A change of an object that is not written yet.

    Attributes:
        old: the document as it is.
        candidate: as it is to be.
        warnings: for the ``Warning`` headers.
    """

    old: Document
    candidate: Document
    warnings: tuple[str, ...]


class _Checked(NamedTuple):
    """The result of checking a new object.

    Attributes:
        warnings: for the ``Warning`` headers.
        encoded: the bytes of fields that need not be encoded again.
    """

    warnings: tuple[str, ...]
    encoded: Mapping[str, msgspec.Raw] = storage.NO_PARTS


_NOT_YET = Written(b"")


class Registry:
    """Objects of every kind in a store.

    Args:
        store: where they are kept.
        scheme: the kinds.
        clock: for timestamps.
        rng: for uids and generated names.
        admission: rules that look beyond the object, in order.
        service_network: the range of the addresses of Services.
        offload: where large documents are prepared.
        unreadable: objects that cannot be read.

    Attributes:
        node_capacity: what the pods of each node ask for together; to be loaded from a store in use.
        services: the addresses and ports of Services; to be loaded from a store in use.
        pod_specs: the cache of accepted specs of pods.
        unreadable: objects that cannot be read; to be found in a store in use.
        offload: where large documents are prepared.
    """

    def __init__(  # noqa: PLR0913  everything is injected
        self,
        store: Store,
        scheme: Scheme,
        *,
        clock: Clock,
        rng: Stream,
        admission: Sequence[AdmissionPlugin] = (),
        service_network: IPv4Network = DEFAULT_NETWORK,
        offload: Offload | None = None,
        unreadable: UnreadableObjects,
    ) -> None:
        self.store = store
        self.scheme = scheme
        self.clock = clock
        self.work = Work()
        self.node_capacity = NodeCapacity(store)
        self.services = ServiceAllocator(store, service_network)
        self.pod_specs = PodSpecCache()
        self._rng = rng.fork("registry")
        self._admission = tuple(admission)
        self.offload = offload or Inline()
        self.unreadable = unreadable

    def get(self, place: Place) -> Entry:
        """The acknowledged object.

        Raises:
            NotFound: there is none.
        """
        entry = self.store.get(place.key)
        if entry is None:
            raise storage.not_found(place.info, place.name)
        self._check_readable(place, entry)
        return entry

    async def create(
        self,
        info: AnyKind,
        namespace: str,
        document: Document,
        options: WriteOptions,
        sent: SentPod | None = None,
    ) -> Written:
        """Write a new object; the document may be changed.

        Args:
            info: the kind.
            namespace: where; empty for cluster-scoped kinds.
            document: the object; that of ``sent`` if its spec is cached.
            options: how to write.
            sent: the body of a pod for the cache of specs; None without it.

        Raises:
            AlreadyExists: the name is taken.
            BadRequest, Invalid, Forbidden, NotFound, TooLarge: the object cannot be accepted.
        Cancellation: the write may still happen.
        """
        meta = metadata.envelope(info, document, namespace)
        generated = not meta.get("name") and bool(meta.get("generateName"))
        metadata.prepare(info, meta, now=self.clock.now(), rng=self._rng)
        if info.has_status and (info.group, info.plural) not in _STATUS_ON_CREATE:
            document.pop("status", None)
        attempt = Attributes(
            "create", info, namespace, meta.get("name") or "", document, options.user
        )
        if options.large:
            document, checked = await self._check_new_off_loop(attempt, document, options, sent)
            meta = document["metadata"]
        else:
            checked = self._check_new(document, self._admit(attempt), info, options, sent)
        place = Place(info, namespace, meta["name"])
        if generated:
            for _ in range(_GENERATE_ATTEMPTS):
                if self.store.latest(place.key) is None:
                    break
                metadata.generate_name(meta, self._rng)
                place = Place(info, namespace, meta["name"])
        return await self._create(place, document, options, checked)

    async def _check_new_off_loop(
        self, attempt: Attributes, document: Document, options: WriteOptions, sent: SentPod | None
    ) -> tuple[Document, "_Checked"]:
        """Check a new object while other requests are served, again if admission differs afterwards.

        Returns:
            The completed object; nothing was awaited after it was admitted.

        Raises:
            Conflict: admission differed each time.
        """
        info = attempt.info
        for _ in range(_REVISIONS_MAX):
            mutations = self._admit(attempt)

            def check(
                admitted: tuple[Mutation | None, ...] = mutations,
            ) -> tuple[Document, _Checked]:
                copy: Document = codec.clone(document)  # admission reads the original again
                return copy, self._check_new(copy, admitted, info, options, sent)

            found = await self.offload.run(check)
            if self._admit(attempt) == mutations:
                return found
        raise storage.conflict(info, attempt.name, _ADMISSION_CHANGED)

    def _check_new(
        self,
        document: Document,
        mutations: tuple[Mutation | None, ...],
        info: AnyKind,
        options: WriteOptions,
        sent: SentPod | None,
    ) -> "_Checked":
        """Complete a new object that was admitted, and check it by its schema and its rules."""
        if sent is not None and sent.accepted is not None:
            if not options.duplicates and self.pod_specs.reuse(sent.accepted, mutations, document):
                return _Checked(sent.accepted.warnings, {"spec": sent.accepted.encoded})
            document["spec"] = codec.decode_trusted(sent.spec)
        for mutation in mutations:
            if mutation is not None:
                mutation.apply(document["spec"])
        warnings = conform(info, document, options)
        refuse(info, document, validate(document, None, info))
        reviewed = tuple(info.review(document, None, self.clock.now()))
        if sent is None or warnings or options.field_validation == IGNORE:
            return _Checked((*warnings, *reviewed))
        encoded = self.pod_specs.add(sent, mutations, document, reviewed)
        return _Checked(reviewed, {} if encoded is None else {"spec": encoded})

    async def _create(
        self, place: Place, document: Document, options: WriteOptions, checked: "_Checked"
    ) -> Written:
        if place.info is SERVICE:
            self.services.assign(place.key, document)
        warnings = checked.warnings
        value = storage.encode(place.info, document, self.work, checked.encoded)
        if options.dry_run:
            if self.store.latest(place.key) is not None:
                raise storage.already_exists(place.info, place.name)
            return Written(value(0), warnings)
        key = place.key
        noted = self.node_capacity.noting(place.info, key, document, value)
        try:
            entry = await self.store.put(key, noted, expect=0)
        except StoreError as error:
            raise storage.translate(error, place.info, place.name) from error
        return Written(entry.value, warnings)

    async def update(
        self,
        place: Place,
        change: Callable[[Document], Document],
        options: WriteOptions,
        *,
        part: Part = main_part,
        verb: str = "update",
        keeps_spec: bool = False,
    ) -> Written:
        """Change an object.

        Args:
            place: which.
            change: gives the new document from the old, which it must not change.
            options: how to write.
            part: which part of the new document counts.
            verb: update or patch, for admission.
            keeps_spec: neither the change nor the part reads or changes the spec.

        Returns:
            The object as stored; unchanged, with its revision, when nothing differs. Taking the last
            finalizer from a deleted object removes it.

        Raises:
            NotFound: there is none.
            Conflict: the new document's resourceVersion or uid is not the object's.
            BadRequest, Invalid, Forbidden, TooLarge: the change cannot be accepted.
        Cancellation: the write may still happen.
        """
        info = place.info
        without_spec = keeps_spec and info is POD
        revise = partial(
            self._revise, place, options=options, part=part, verb=verb, without_spec=without_spec
        )
        entry = self._latest(place)
        if options.large or is_large(entry.value):
            entry, revised = await self._revise_off_loop(place, revise, change)
            # What admission looks at may have changed while the object did not.
            self._admit(self._attempt(verb, place, options, revised.candidate, revised.old))
        else:
            revised = revise(entry, change)
        old, candidate, warnings = revised
        if info is SERVICE:
            self.services.assign(place.key, candidate, old)
        if deletion.is_complete(info, candidate):
            return await self._remove(place, entry, candidate, dry_run=options.dry_run)
        if candidate == old and entry.revision <= self.store.revision:
            # Only what is on disk may be confirmed; an unacknowledged twin is written again.
            return Written(entry.value, warnings)
        return await self._replace(place, entry, candidate, options, warnings)

    async def _revise_off_loop(
        self,
        place: Place,
        revise: Callable[[Entry, Callable[[Document], Document]], "_Revised"],
        change: Callable[[Document], Document],
    ) -> tuple[Entry, "_Revised"]:
        """Compute a change while other requests are served, again if the object changed meanwhile.

        Returns:
            The newest accepted entry, and what becomes of it; nothing was awaited after it was read.

        Raises:
            Conflict: it changed each time.
        """

        def repeatable(old: Document) -> Document:
            copy: Document = codec.clone(change(old))  # what the change gives is changed further
            return copy

        for _ in range(_REVISIONS_MAX):
            entry = self._latest(place)
            revised = await self.offload.run(partial(revise, entry, repeatable))
            if self._latest(place).revision == entry.revision:
                return entry, revised
        raise storage.conflict(place.info, place.name, storage.CHANGED)

    def _revise(
        self,
        place: Place,
        entry: Entry,
        change: Callable[[Document], Document],
        *,
        options: WriteOptions,
        part: Part,
        verb: str,
        without_spec: bool = False,
    ) -> "_Revised":
        """What becomes of an entry; writes nothing.

        ``without_spec`` leaves the spec raw unless the rest does not conform to the schema.
        """
        info, name = place.info, place.name
        if without_spec:
            old = storage.decode_outline(entry.value, self.work)
            new = change({field: value for field, value in old.items() if field != "spec"})
        else:
            old = storage.decode(entry.value, self.work)
            if info is LEASE and not options.duplicates and (lease := renewed(old, change)):
                self._admit(self._attempt(verb, place, options, lease, old))
                self.work.renewals += 1
                return _Revised(old, lease, ())
            new = change(old)
        meta = metadata.envelope(info, new, place.namespace, name)
        self._check_preconditions(
            place, entry, old, uid=meta.get("uid"), version=meta.get("resourceVersion")
        )
        candidate = part(info, old, new)
        metadata.protect(old, candidate)
        if without_spec and not conforms_without_spec(info, candidate, options):
            return self._revise(place, entry, change, options=options, part=part, verb=verb)
        warnings = () if without_spec else conform(info, candidate, options, old)
        info.prepare_for_update(old, candidate)
        if part is not status_part:  # which leaves everything else as it is
            metadata.count_generation(info, old, candidate)
        self._admit(self._attempt(verb, place, options, candidate, old))
        refuse(info, candidate, validate(candidate, old, info))
        warnings = (*warnings, *info.review(candidate, old, self.clock.now()))
        return _Revised(old, candidate, warnings)

    async def rewrite(
        self, rewrites: Sequence[Rewrite], options: WriteOptions
    ) -> Sequence[Written | ApiError]:
        """Change objects as the server itself decides, each for itself and all in one step.

        The documents are not checked against schema and rules: those are for callers, and forbid
        what the server does here (a binding sets the node).

        Returns:
            For each the object as stored, or why it is refused: ``NotFound``, ``Conflict`` (also when
            a pod that it puts on a node does not fit there), ``TooLarge``, or what admission or the
            change raised.

        Raises:
            ApiError: the store refused; nothing was written.
        Cancellation: the writes may still happen; all that are accepted, or none.
        """
        outcomes: list[Written | ApiError] = []
        writes: list[Write] = []
        accepted: list[int] = []  # where in the outcomes
        for rewrite in rewrites:
            place = rewrite.place
            try:
                entry = self._latest(place)
                old = storage.decode_outline(entry.value, self.work)
                self._check_preconditions(
                    place, entry, old, uid=rewrite.uid, version=rewrite.version
                )
                new = rewrite.change(old)
                self._admit(rewrite.attempt)
                value = storage.encode_again(place.info, new, self.work)
                if options.dry_run:
                    self._check_room(place, entry.key, new)
                    outcomes.append(Written(value(entry.revision)))
                    continue
            except ApiError as error:
                outcomes.append(error)
                continue
            accepted.append(len(outcomes))
            outcomes.append(_NOT_YET)
            noted = self.node_capacity.noting(place.info, entry.key, new, value, fits=True)
            writes.append(Write(entry.key, noted, entry.revision))
        if writes:
            with storage.translated():
                entries = await self.store.put_group(writes)
            for at, outcome in zip(accepted, entries, strict=True):
                if isinstance(outcome, StoreError):  # an earlier one was faster, or took the room
                    place = rewrites[at].place
                    outcomes[at] = storage.translate(outcome, place.info, place.name)
                else:
                    outcomes[at] = Written(outcome.value)
        return outcomes

    async def _replace(
        self,
        place: Place,
        entry: Entry,
        document: Document,
        options: WriteOptions,
        warnings: tuple[str, ...] = (),
    ) -> Written:
        value = storage.encode(place.info, document, self.work)
        if options.dry_run:
            return Written(value(entry.revision), warnings)
        noted = self.node_capacity.noting(place.info, entry.key, document, value)
        try:
            written = await self.store.put(entry.key, noted, expect=entry.revision)
        except StoreError as error:
            raise storage.translate(error, place.info, place.name) from error
        return Written(written.value, warnings)

    async def delete(self, place: Place, options: DeleteOptions) -> Written:
        """Delete an object, or send it on its way (see ``deletion``).

        Raises:
            NotFound: there is none.
            Conflict: a precondition does not hold.
            Forbidden: it may not be deleted.
        Cancellation: the write may still happen.
        """
        entry = self._find(place)
        if options.ignore_unreadable and self.unreadable.holds(entry.key, entry.value):
            return await self._remove_unreadable(place, entry, options)
        self._check_readable(place, entry)
        self._admit(self._attempt("delete", place, options))
        old = storage.decode(entry.value, self.work)
        self._check_preconditions(
            place, entry, old, uid=options.uid, version=options.resource_version
        )
        match deletion.decide(place.info, old, options, self.clock.now()):
            case deletion.Remove():
                last = deletion.without_finalizer(old, options.finalizer)
                return await self._remove(place, entry, last, dry_run=options.dry_run)
            case deletion.Mark(document):
                plain = WriteOptions(dry_run=options.dry_run, user=options.user)
                return await self._replace(place, entry, document, plain)
            case deletion.Keep():
                return Written(entry.value)

    async def _remove(
        self, place: Place, entry: Entry, document: Document, *, dry_run: bool
    ) -> Written:
        value = storage.encode(place.info, document, self.work)
        if dry_run:
            return Written(value(entry.revision), removed=True)
        noted = self.node_capacity.noting(place.info, entry.key, document, value, gone=True)
        try:
            gone = await self.store.delete(entry.key, value=noted, expect=entry.revision)
        except StoreError as error:
            raise storage.translate(error, place.info, place.name) from error
        return Written(gone.value, removed=True)

    async def _remove_unreadable(
        self, place: Place, entry: Entry, options: DeleteOptions
    ) -> Written:
        """Remove an object that nothing can be asked of: neither finalizers nor preconditions."""
        self._admit(self._attempt("delete", place, options))
        meta: Document = {"name": place.name, "uid": ""}
        if place.info.namespaced:
            meta["namespace"] = place.namespace
        gone = {"apiVersion": place.info.api_version, "kind": place.info.kind, "metadata": meta}
        if not options.dry_run:
            with storage.translated(place.info, place.name):
                await self.store.delete(entry.key, expect=entry.revision)
        return Written(codec.encode(gone), removed=True)

    def _find(self, place: Place) -> Entry:
        entry = self.store.latest(place.key)
        if entry is None:
            raise storage.not_found(place.info, place.name)
        return entry

    def _latest(self, place: Place) -> Entry:
        entry = self._find(place)
        self._check_readable(place, entry)
        return entry

    def _check_readable(self, place: Place, entry: Entry) -> None:
        if self.unreadable:  # it is empty almost always, and this is on the path of every write
            self.unreadable.check(place.info, entry)

    def _check_preconditions(
        self, place: Place, entry: Entry, old: Document, *, uid: str | None, version: str | None
    ) -> None:
        held = old["metadata"].get("uid")
        if uid and uid != held:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {held}"
            raise storage.conflict(place.info, place.name, why)
        if version and version != str(entry.revision):
            raise storage.conflict(place.info, place.name, storage.CHANGED)

    def _check_room(self, place: Place, key: str, new: Document) -> None:
        refusal = self.node_capacity.refusal(place.info, key, new)
        if refusal is not None:
            raise storage.conflict(place.info, place.name, str(refusal))

    def _attempt(
        self,
        verb: str,
        place: Place,
        options: WriteOptions | DeleteOptions,
        document: Document | None = None,
        old: Document | None = None,
    ) -> Attributes:
        where = place.info, place.namespace, place.name
        return Attributes(verb, *where, document, options.user, old)

    def _admit(self, attempt: Attributes) -> tuple[Mutation | None, ...]:
        return tuple([plugin.admit(attempt) for plugin in self._admission])
