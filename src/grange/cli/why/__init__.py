"""How ``grange why`` answers: one module and one line a kind; every other kind speaks by conditions."""

from collections.abc import Mapping

from grange.cli.why import pods, replicationcontrollers
from grange.cli.why.answer import Ask

TABLE: Mapping[str, Ask] = {
    "pods": pods.ask,
    "replicationcontrollers.grange.dev": replicationcontrollers.ask,
}
