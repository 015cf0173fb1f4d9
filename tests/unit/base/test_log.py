"""A record is a constant event with facts, and never carries a secret."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from grange.base.log import JsonFormatter, Logger, TextFormatter, configure, facts_of
from grange.sim.pytest_plugin import Records


@pytest.fixture
def restored() -> Iterator[None]:
    root = logging.getLogger("grange")
    before = root.handlers[:], root.level, root.propagate
    yield
    root.handlers[:], root.level, root.propagate = before


def record(event: str, facts: dict[str, object], error: BaseException | None = None) -> str:
    made = logging.LogRecord("grange.x", logging.WARNING, "f.py", 1, event, (), None)
    made.facts = facts
    made.created = 1767225600.25
    if error is not None:
        made.exc_info = (type(error), error, None)
    return JsonFormatter().format(made) + "\n" + TextFormatter().format(made)


def test_bound_facts_are_on_every_record_and_later_ones_win(log: Logger, records: Records) -> None:
    bound = log.bind(node="a", pod="p").bind(pod="q")
    bound.info("pod bound", attempt=2)
    log.debug("plain")
    assert records == [("pod bound", {"node": "a", "pod": "q", "attempt": 2}), ("plain", {})]


def test_facts_may_have_any_name(log: Logger, records: Records) -> None:
    log.info("odd", event=1, self=2, level=3, name=4)
    assert records == [("odd", {"event": 1, "self": 2, "level": 3, "name": 4})]


@pytest.mark.parametrize(
    "key",
    [
        *("token", "Authorization", "password", "secret", "data", "private_key"),
        *("private-key", "bearer_token", "db_password"),
    ],
)
def test_secrets_never_reach_a_record(log: Logger, records: Records, key: str) -> None:
    log.bind(**{key: "s3cr3t"}).error("a", headers={key: "s3cr3t", "host": "h"})
    log.error("b", **{key: ["s3cr3t"]})
    assert "s3cr3t" not in str(records)
    assert "'host': 'h'" in str(records)


def test_control_characters_of_facts_are_escaped() -> None:
    hostile = "\x1b]0;owned\x07\x9b2J"
    shown = record("a", {"text": hostile, "list": [hostile]}, ValueError(hostile))
    assert not any(c in shown for c in "\x1b\x07\x9b")
    assert json.loads(shown.splitlines()[0])["list"] == [hostile]


def test_disabled_levels_cost_no_record(restored: None) -> None:
    stream = io.StringIO()
    configure(level="warning", stream=stream)
    log = Logger("x")
    log.info("hidden")
    log.warning("shown", n=1)
    assert stream.getvalue().endswith("warning shown  n=1\n")
    assert stream.getvalue().count("\n") == 1


def test_configure_twice_replaces_the_handler(restored: None) -> None:
    first, second = io.StringIO(), io.StringIO()
    configure(stream=first)
    configure(stream=second, json_lines=True)
    Logger("x").info("once")
    assert first.getvalue() == ""
    assert json.loads(second.getvalue())["msg"] == "once"


def test_unknown_level_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'loud': one of debug, info, warning, error"):
        configure(level="loud")


def test_json_line_starts_with_fixed_keys_facts_cannot_replace() -> None:
    line = json.loads(record("hi", {"level": "x", "n": 1.5, "ok": True}).split("\n")[0])
    assert list(line) == ["ts", "level", "logger", "msg", "level_", "n", "ok"]
    assert line["ts"] == "2026-01-01T00:00:00.250+00:00"
    assert line["level"] == "warning"
    assert line["level_"] == "x"


def test_json_holds_every_value_somehow() -> None:
    facts: dict[str, object] = {
        "error": KeyError("k"),
        "nan": float("nan"),
        "deep": {"list": [1, (2, None)], "object": object},
    }
    line = json.loads(record("hi", facts).split("\n")[0])
    assert line["error"] == "KeyError: 'k'"
    assert line["nan"] == "nan"
    assert line["deep"] == {"list": [1, [2, None]], "object": "<class 'object'>"}


def test_text_line_stays_one_line_and_unambiguous() -> None:
    text = record("hi", {"a": "two words", "b": "x\ny\x1b[0m", "c": "plain", "d": "", "e": "k=v"})
    assert text.split("\n")[1:] == [
        '00:00:00.250 warning hi  a="two words" b="x\\ny\\u001b[0m" c=plain d="" e="k=v"'
    ]


def test_crash_carries_the_trace(restored: None) -> None:
    for json_lines in (True, False):
        stream = io.StringIO()
        configure(stream=stream, json_lines=json_lines)
        try:
            int("broken")
        except ValueError as error:
            Logger("x").crash("service crashed", error, service="s")
        text = stream.getvalue()
        assert "test_log.py" in text
        assert "invalid literal" in text
        assert "service crashed" in text


def test_records_of_other_libraries_have_no_facts() -> None:
    made = logging.LogRecord("asyncio", logging.INFO, "f.py", 1, "hi", (), None)
    assert facts_of(made) == {}
    made.facts = "nonsense"
    assert facts_of(made) == {}
