"""``grange up --pool``: which nodes are in which pool, now and after the next start."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from grange.app.daemon import command_line
from grange.app.datadir import (
    REMEMBERED_POOLS,
    remember_nodes,
    remember_pools,
    remembered_pools,
)
from grange.app.node_pools import InvalidPoolSize, PoolSize, assign, parse_size, sizes
from grange.app.settings import Settings, SettingsError
from grange.app.up import chosen_nodes, chosen_pools

_NAMES = st.sampled_from(["drivers", "workers", "gpu", "large"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workers", "write NAME=COUNT, for example workers=3"),
        ("workers=", "write NAME=COUNT"),
        ("=3", "write NAME=COUNT"),
        ("workers=-1", "write NAME=COUNT"),
        ("workers=three", "write NAME=COUNT"),
        ("workers=²", "write NAME=COUNT"),
        ("no good=1", "'no good' cannot be a pool"),
    ],
)
def test_pool_size_is_name_and_count(text: str, message: str) -> None:
    assert str(parse_size("workers-8core=3")) == "workers-8core=3"
    with pytest.raises(InvalidPoolSize, match=message):
        parse_size(text)


def test_pools_take_nodes_in_their_order() -> None:
    pools = (PoolSize("drivers", 1), PoolSize("workers", 3))
    assert assign(pools, 5) == ("drivers", "workers", "workers", "workers", "")
    assert sizes(assign(pools, 5)) == pools


@given(
    before=st.lists(st.one_of(st.just(""), _NAMES), max_size=12),
    wanted=st.dictionaries(_NAMES, st.integers(0, 4)),
    spare=st.integers(0, 4),
)
def test_nodes_change_only_as_sizes_require(
    before: list[str], wanted: dict[str, int], spare: int
) -> None:
    pools = [PoolSize(*item) for item in wanted.items()]
    nodes = sum(wanted.values()) + spare
    assigned = assign(pools, nodes, before)
    assert len(assigned) == nodes
    found = Counter(filter(None, assigned))
    assert found == Counter({name: count for name, count in wanted.items() if count})
    stayed = Counter(
        name for name, former in zip(assigned, before, strict=False) if name and name == former
    )
    for name, count in Counter(filter(None, before[:nodes])).items():
        assert stayed[name] == min(count, wanted.get(name, 0))
    assert assign(pools, nodes, assigned) == assigned


def test_too_few_nodes_for_the_pools_are_rejected(tmp_path: Path) -> None:
    pools = (PoolSize("drivers", 1), PoolSize("workers", 4))
    message = r"--nodes 4: the pools drivers=1, workers=4 take 5 nodes; give --nodes 5 or smaller"
    with pytest.raises(SettingsError, match=message):
        Settings(tmp_path, nodes=4, pools=pools)
    twice = (PoolSize("a", 1), PoolSize("a", 2))
    with pytest.raises(SettingsError, match="pool a is given twice"):
        Settings(tmp_path, nodes=4, pools=twice)


def test_pools_raise_a_number_that_is_not_given(tmp_path: Path) -> None:
    assert chosen_nodes(tmp_path, None, remove=False, needed=4) == 4
    remember_nodes(tmp_path, 6)
    assert chosen_nodes(tmp_path, None, remove=False, needed=4) == 6
    assert chosen_nodes(tmp_path, 3, remove=True, needed=4) == 3  # which Settings rejects


def test_pools_are_remembered(tmp_path: Path) -> None:
    assert chosen_pools(tmp_path, (), None) == ()
    remember_pools(tmp_path, ("drivers", "", "workers", "workers"))
    before = (PoolSize("drivers", 1), PoolSize("workers", 2))
    assert chosen_pools(tmp_path, (), None) == before
    assert chosen_pools(tmp_path, (), 4) == before
    fewer = (PoolSize("drivers", 0), PoolSize("workers", 2))
    assert chosen_pools(tmp_path, fewer, 2) == fewer
    message = r"--nodes 2: .* has the pools drivers=1, workers=2; give their new sizes"
    with pytest.raises(SettingsError, match=message):
        chosen_pools(tmp_path, (), 2)
    (tmp_path / REMEMBERED_POOLS).write_text("[1]")
    assert remembered_pools(tmp_path) == ()


def test_detached_child_gets_the_pools(tmp_path: Path) -> None:
    settings = Settings(tmp_path, nodes=4, pools=(PoolSize("drivers", 1), PoolSize("workers", 3)))
    words = command_line(settings)
    at = words.index("--pool")
    assert words[at : at + 4] == ["--pool", "drivers=1", "--pool", "workers=3"]
