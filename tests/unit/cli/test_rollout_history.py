"""``grange rc rollout history``: what each revision changed."""

from grange.api.meta import Document
from grange.api.rollouts import Revision
from grange.cli.verbs.rc import rollout


def template(level: str, image: str = "web:1") -> Document:
    container = {"name": "web", "image": image, "env": [{"name": "LEVEL", "value": level}]}
    return {"spec": {"containers": [container]}}


def test_history_shows_what_revisions_change() -> None:
    history = (
        Revision(1, "a", template("info"), "t1"),
        Revision(3, "c", template("debug", "web:2"), "t3", "second image"),
        Revision(2, "b", template("debug"), "t2"),
    )
    assert rollout.history_rows(history, "b") == [
        ["1", "a", "", "web:1", "", "", "t1"],
        ["2", "b", "*", "web:1", "containers[web].env[LEVEL].value", "", "t2"],
        ["3", "c", "", "web:2", "containers[web].image", "second image", "t3"],
    ]
