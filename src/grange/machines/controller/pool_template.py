"""What machines take over from their pool when they are ordered."""

import json

import msgspec

from grange.api import names
from grange.api.kinds.nodepool import NodePool

CONFIG_ANNOTATION = "grange.dev/provider-config"
"""Annotation of machines: the ``providerConfig`` of the pool when the machine was ordered, as JSON."""


def config_text(pool: NodePool) -> str:
    """The ``providerConfig`` of a pool, one text for equal ones."""
    return json.dumps(pool.spec.provider_config, sort_keys=True, separators=(",", ":"))


def template_hash(pool: NodePool) -> str:
    """Of the fields that machines are made from: another one there is drift."""
    spec = pool.spec
    made_from = (spec.template, spec.volume, spec.bootstrap, spec.user_data, spec.mode)
    return names.digest(config_text(pool), msgspec.json.encode(made_from, order="sorted").decode())
