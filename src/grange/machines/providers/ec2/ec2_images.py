"""How a pool's ``bootImage`` becomes a query, and which of the answers is used."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from grange.machines.providers.provider import MisconfiguredError

DEFAULT: Mapping[str, str] = {
    "owner": "099720109477",
    "name": "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-*",
}
"""Ubuntu 24.04 by its maker: has Python 3.12 and cloud-init."""

_FILTERS = {"name": "name", "architecture": "architecture"}
_TAG = "tag:"


def image_query(spec: Mapping[str, str]) -> dict[str, Any]:
    """The parameters of the call that lists matches.

    Raises:
        MisconfiguredError: a key is not known.
    """
    spec = spec or DEFAULT
    for key in spec:
        if key not in {"id", "owner", *_FILTERS} and not key.startswith(_TAG):
            raise MisconfiguredError(
                f"spec.bootImage.{key}: unknown; use id, name, owner, architecture or tag:KEY"
            )
    filters = [{"Name": "state", "Values": ["available"]}]
    filters += [
        {"Name": _FILTERS.get(key, key), "Values": [value]}
        for key, value in sorted(spec.items())
        if key in _FILTERS or key.startswith(_TAG)
    ]
    query: dict[str, Any] = {"Filters": filters}
    if "id" in spec:
        query["ImageIds"] = [spec["id"]]
    else:
        # Anyone can publish an image of any name.
        query["Owners"] = [spec.get("owner", "self")]
    return query


def newest_image(images: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The one that was made last; one without a date that can be read is older than all others."""
    return max(images, key=lambda one: (_made(one), one["ImageId"]), default=None)


def _made(image: Mapping[str, Any]) -> datetime:
    oldest = datetime(1, 1, 1, tzinfo=UTC)
    try:
        found = datetime.fromisoformat(image["CreationDate"])
    except (KeyError, TypeError, ValueError):
        return oldest
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
