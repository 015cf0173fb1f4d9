"""Variables from files that other containers of the pod wrote."""

from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.support.agent_world import World, world
from tests.unit.agent.builders import container, document

from grange.agent.env_files import EnvFileError, parse
from grange.agent.runtimes.fake import Script
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

Tools = tuple[Clock, Stream, Logger]
SHARED = {"name": "shared", "emptyDir": {}}


@pytest.fixture
def tools(clock: Clock, rng: Stream, log: Logger) -> Tools:
    return clock, rng, log


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("A='1'", {"A": "1"}),
        ("A='1'\nB=''\n", {"A": "1", "B": ""}),
        ("\n# a comment\n  A='1'  # another\n\t\n", {"A": "1"}),
        ("A='first\nsecond # kept\n\n'\nB='x'", {"A": "first\nsecond # kept\n\n", "B": "x"}),
        ("A='$B \\n \"x\"'", {"A": '$B \\n "x"'}),
        ("A='1'\nA='2'", {"A": "2"}),
        ("a.b-c='1'", {"a.b-c": "1"}),
    ],
)
def test_variables_of_a_file_are_read(text: str, found: dict[str, str]) -> None:
    assert parse(text.encode()) == found


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"A=secret", "line 1 is not NAME='value'"),
        (b"\nA = 'secret'", "line 2 is not NAME='value'"),
        (b"A='1'\nexport B='secret'", "line 2 is not NAME='value'"),
        (b'A="secret"', "line 1 is not NAME='value'"),
        (b"='secret'", "line 1 is not NAME='value'"),
        (b"A='1'\nB='secret\n\n", "the value that begins in line 2 has no end"),
        (b"A='1\n2'secret", "line 2 has more after its value"),
        (b"A='secret\0'", "the value that begins in line 1 holds a NUL byte"),
        (b"A='\xff'", "it is not text"),
    ],
)
def test_malformed_file_is_named_without_its_content(content: bytes, message: str) -> None:
    with pytest.raises(EnvFileError) as caught:
        parse(content)
    assert str(caught.value) == message


@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z_][A-Za-z0-9_]*", fullmatch=True),
        st.text(st.characters(exclude_characters="'\0", exclude_categories=["Cs"])),
    )
)
def test_written_variables_are_read_as_they_are(variables: dict[str, str]) -> None:
    text = "".join(f"{name}='{value}'\n" for name, value in variables.items())
    assert parse(text.encode()) == variables


def reading(key: str = "NAME", **fields: Any) -> Any:
    reference = {"volumeName": "shared", "path": "a/env", "key": key, **fields}
    return container(env=[{"name": "TAKEN", "valueFrom": {"fileKeyRef": reference}}])


async def start(there: World, spec: Any, content: bytes, **pod: Any) -> None:
    there.machine.scripts["writes"] = Script(duration_s=1.0, files=(("shared/a/env", content),))
    first = container("first", "writes")
    await there.create(document(spec, initContainers=[first], volumes=[SHARED], **pod))
    await there.clock.sleep(5)


async def test_container_has_what_an_init_container_wrote(tools: Tools) -> None:
    async with world(*tools) as there:
        await start(there, reading(), b"OTHER='x'\nNAME='a value'\n")
        [started] = there.starts()
        assert there.machine.environments[started]["TAKEN"] == "a value"


@pytest.mark.parametrize(
    ("spec", "content", "message"),
    [
        (
            reading("MISSING"),
            b"NAME='x'",
            'no variable "MISSING" in file "a/env" of volume "shared"',
        ),
        (reading(path="none"), b"NAME='x'", 'there is no file "none" of volume "shared"'),
        (reading(), b"NAME=secret", "cannot be read: line 1 is not NAME='value'"),
        (reading(optional=True), b"NAME=secret", "cannot be read: line 1"),
    ],
)
async def test_container_waits_for_what_is_missing(
    tools: Tools, spec: Any, content: bytes, message: str
) -> None:
    async with world(*tools) as there:
        await start(there, spec, content)
        waiting = (await there.main()).state.waiting
        assert waiting is not None
        assert waiting.reason == "CreateContainerConfigError"
        assert message in waiting.message
        assert "secret" not in waiting.message


@pytest.mark.parametrize("fields", [{"key": "MISSING"}, {"path": "none"}])
async def test_optional_variable_is_left_out(tools: Tools, fields: dict[str, str]) -> None:
    async with world(*tools) as there:
        await start(there, reading(optional=True, **fields), b"NAME='x'")
        [started] = there.starts()
        assert "TAKEN" not in there.machine.environments[started]


async def test_volume_of_another_kind_is_refused(tools: Tools) -> None:
    async with world(*tools) as there:
        volume = {"name": "shared", "hostPath": {"path": "/etc"}}
        await there.create(document(reading(), volumes=[volume]))
        await there.clock.sleep(5)
        waiting = (await there.main()).state.waiting
        assert waiting is not None
        assert 'volume "shared" is no emptyDir of the pod' in waiting.message
