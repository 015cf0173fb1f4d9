"""ConfigMap: settings as keys and values, for environment variables and files."""

import msgspec

from grange.api import names
from grange.api.meta import Document, Resource
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.status import Cause
from grange.api.validation.causes import Faults
from grange.api.validation.content import check_frozen, check_size, decode_base64

FIELDS = ("data", "binaryData")


class ConfigMap(Resource, frozen=True):
    """A config map; ``binary_data`` is base64."""

    data: dict[str, str] = msgspec.field(default_factory=dict)
    binary_data: dict[str, str] = msgspec.field(default_factory=dict)
    immutable: bool | None = None


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    data, binary = document.get("data") or {}, document.get("binaryData") or {}
    for field, content in (("data", data), ("binaryData", binary)):
        for key in content:
            faults.named(f"{field}[{key}]", key, names.check_config_key(key))
    for key, text in binary.items():
        if decode_base64(text) is None:
            faults.invalid(f"binaryData[{key}]", text, "must be base64")
    for key in data:
        if key in binary:
            faults.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    check_size((data, binary), faults)
    check_frozen(document, old, FIELDS, faults)
    return faults.causes


CONFIGMAP = KindInfo(
    group="",
    version="v1",
    kind="ConfigMap",
    plural="configmaps",
    view=ConfigMap,
    schema="io.k8s.api.core.v1.ConfigMap",
    short_names=("cm",),
    has_status=False,
    columns=(
        Column("Data", cells.count(*FIELDS), type="integer", description="How many keys it has."),
    ),
    validate=_validate,
)
