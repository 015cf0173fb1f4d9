"""How many connections the descriptors of a process allow."""

import resource

from grange.app.descriptors import connection_limits, raise_limit


def test_half_of_the_descriptors_stay_for_store_and_agents() -> None:
    few = connection_limits(1_024)
    assert (few.total, few.unauthenticated, few.unauthenticated_per_peer) == (512, 256, 128)
    many = connection_limits(65_536)
    assert (many.total, many.unauthenticated, many.unauthenticated_per_peer) == (4_096, 512, 256)


def test_soft_limit_is_raised_to_the_hard_one() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        assert raise_limit() == min(before[1], 65_536)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == raise_limit()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
