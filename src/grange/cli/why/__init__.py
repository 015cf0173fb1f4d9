"""``grange why`` by kind: one module and one line each; other kinds are explained by ``generic``."""

from collections.abc import Mapping

from grange.cli.why import pods, replicationcontrollers
from grange.cli.why.answer import Ask

TABLE: Mapping[str, Ask] = {
    "pods": pods.ask,
    "replicationcontrollers.grange.dev": replicationcontrollers.ask,
}
