"""What the pods of one node hold of its devices: the value that ``requests.Usage`` carries."""

import msgspec


class DeviceUsage(msgspec.Struct, frozen=True, gc=False):
    """What is in use of a node's devices; ``devices`` says what that means.

    Attributes:
        used: thousandths in use by device; devices after the last one in use are left out.
        tenants: how many pods there are by how many whole devices they hold, 0 for a share; sorted.
    """

    used: tuple[int, ...] = ()
    tenants: tuple[tuple[int, int], ...] = ()


NONE_HELD = DeviceUsage()
