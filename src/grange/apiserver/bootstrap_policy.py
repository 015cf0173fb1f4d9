"""Writes the default roles and bindings when the server starts."""

from grange.api.cluster_roles import aggregated_rules
from grange.api.kinds import CLUSTERROLE, CLUSTERROLEBINDING
from grange.api.meta import Document
from grange.api.scheme import AnyKind, Scheme
from grange.api.status import ApiError
from grange.apiserver.authorization import default_roles
from grange.apiserver.registry import Place, Registry
from grange.apiserver.write_options import WriteOptions
from grange.base.log import Logger

_OPTIONS = WriteOptions()


async def write_default_roles(registry: Registry, scheme: Scheme, log: Logger) -> None:
    """Create what is missing, and complete what lacks rules or subjects.

    One that cannot be written is logged: a server that starts is of more use than one that does not.
    """
    if scheme.kind(CLUSTERROLE.api_version, CLUSTERROLE.kind) is None:
        return
    roles = default_roles.cluster_roles(scheme)
    for role in roles:
        if "aggregationRule" in role:
            role["rules"] = aggregated_rules(role, roles)
    for info, documents in (
        (CLUSTERROLE, roles),
        (CLUSTERROLEBINDING, default_roles.cluster_role_bindings()),
    ):
        for document in documents:
            try:
                await _write(registry, info, document)
            except ApiError as error:
                name = document["metadata"]["name"]
                log.error("default role not written", kind=info.kind, name=name, error=error)


async def _write(registry: Registry, info: AnyKind, document: Document) -> None:
    place = Place(info, "", document["metadata"]["name"])
    if registry.store.latest(place.key) is None:
        await registry.create(info, "", document, _OPTIONS)
        return
    await registry.update(place, lambda old: default_roles.completed(old, document), _OPTIONS)
