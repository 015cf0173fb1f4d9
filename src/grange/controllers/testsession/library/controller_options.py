"""How a controller of sessions runs them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from grange.controllers.testsession.library.pod_watcher import WatcherOptions


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """Overrides the defaults of a controller.

    Attributes:
        executor_count: how many sessions run at a time; 0 is the default of 1.
        watcher_options: of its watcher.
        test_timeout_s: how long provisioning and the run of a session may take together; 0: no limit
            but those of the session.
        default_pools: by role, for components that name no pool.
        aging_s: how long a session waits until later ones may not take machines that it needs.
        impossible_grace_s: how long a session waits for machines that its pools do not have; by
            default it ends at once. For pools that grow, or that are just being set up.

    Raises:
        ValueError: a negative number.
    """

    executor_count: int = 1
    watcher_options: WatcherOptions = field(default_factory=WatcherOptions)
    test_timeout_s: float = 0.0
    default_pools: Mapping[str, str] = field(default_factory=dict)
    aging_s: float = 60.0
    impossible_grace_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("executor_count", "test_timeout_s", "aging_s", "impossible_grace_s"):
            if (value := getattr(self, name)) < 0:
                raise ValueError(f"{name}: {value} is negative; give 0 or more")
