"""Secret: keys and values that are not for every eye; values are base64 on the wire."""

import base64

import msgspec

from grange.api import names
from grange.api.fields import readers
from grange.api.meta import Document, Resource
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.status import Cause
from grange.api.validation.causes import Faults
from grange.api.validation.content import check_frozen, check_size, decode_base64

OPAQUE = "Opaque"
# What the well-known types promise their readers.
_REQUIRED_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


class Secret(Resource, frozen=True):
    """A secret; ``data`` is base64."""

    data: dict[str, str] = msgspec.field(default_factory=dict)
    type: str = OPAQUE
    immutable: bool | None = None


def _default(document: Document) -> None:
    if not document.get("type"):
        document["type"] = OPAQUE
    # stringData is for writing only: it goes into data, over what is there.
    if (plain := document.pop("stringData", None)) and isinstance(plain, dict):
        data = document["data"] = dict(document.get("data") or {})
        for key, text in plain.items():
            data[key] = base64.b64encode(str(text).encode()).decode()


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    data = document.get("data") or {}
    for key, text in data.items():
        faults.named(f"data[{key}]", key, names.check_config_key(key))
        if decode_base64(text) is None:
            # The value itself stays out of the message: it is a secret.
            faults.invalid(f"data[{key}]", "", "must be base64; use stringData for plain text")
    for key in _REQUIRED_KEYS.get(document.get("type", ""), ()):
        if key not in data:
            faults.required(f"data[{key}]")
    check_size((data,), faults)
    check_frozen(document, old, ("data",), faults)
    return faults.causes


SECRET = KindInfo(
    group="",
    version="v1",
    kind="Secret",
    plural="secrets",
    view=Secret,
    schema="io.k8s.api.core.v1.Secret",
    has_status=False,
    columns=(
        Column("Type", cells.text("type"), description="What its keys mean."),
        Column("Data", cells.count("data"), type="integer", description="How many keys it has."),
    ),
    fields=readers("type"),
    default=_default,
    validate=_validate,
    immutable=("type",),
)
