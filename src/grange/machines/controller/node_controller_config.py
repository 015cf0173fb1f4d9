"""Settings of the node controller, and the rules that hold between them."""

from dataclasses import dataclass

from grange.base.errors import GrangeError


class ContradictoryIntervals(GrangeError):
    """Intervals contradict each other: change the one that the message names."""


@dataclass(frozen=True, slots=True)
class NodeControllerConfig:
    """How the controller works; durations in seconds.

    Attributes:
        pool_interval_s: a pass happens at least so often.
        heartbeat_interval_s: between two looks at the health of available machines.
        reaper_interval_s: between two looks for machines that are to end.
        instances_interval_s: between two lists of a provider's instances.
        ending_interval_s: the same while one of them ends.
        look_pause_s: between two lists of a provider's instances, at least.
        call_timeout_s: a call to a provider takes no longer; its outcome is unknown then.
        batch_idle_s: a pass begins when nothing has changed for so long.
        batch_max_s: and no later than so long after the first change.
        disruption_interval_s: between two looks at what shared machines could do without.
        image_ttl_s: an image that was looked up is used for so long.
        strike_s: two looks that miss something are at least so far apart.
        terminated_ttl_s: records of terminated machines are kept for so long.
        retry_s: a call that failed is made again after so long, doubling.
        retry_max_s: and no later than this.
        workers: machines that are worked on at a time; one whose provider hangs takes one.
        unhealthy_share: no silent machine is ended while a greater share of them is silent.
    """

    pool_interval_s: float = 15.0
    heartbeat_interval_s: float = 10.0
    reaper_interval_s: float = 10.0
    instances_interval_s: float = 10.0
    ending_interval_s: float = 2.0
    look_pause_s: float = 1.0
    call_timeout_s: float = 60.0
    batch_idle_s: float = 1.0
    batch_max_s: float = 10.0
    disruption_interval_s: float = 10.0
    image_ttl_s: float = 300.0
    strike_s: float = 10.0
    terminated_ttl_s: float = 60.0
    retry_s: float = 2.0
    retry_max_s: float = 60.0
    workers: int = 200
    unhealthy_share: float = 0.2

    def __post_init__(self) -> None:
        """Check the intervals against each other.

        Raises:
            ContradictoryIntervals: they break a rule.
        """
        self._longer("pool_interval_s", "heartbeat_interval_s")
        self._longer("batch_max_s", "batch_idle_s")
        self._longer("retry_max_s", "retry_s")
        if not 0.0 <= self.unhealthy_share <= 1.0:
            share = self.unhealthy_share
            raise ContradictoryIntervals(
                f"unhealthy_share: {share:g} is no share; set it to 0 to 1"
            )

    def _longer(self, first: str, second: str) -> None:
        long, short = getattr(self, first), getattr(self, second)
        if not long > short > 0.0:
            raise ContradictoryIntervals(
                f"{first}: {long:g} s is not longer than {second} ({short:g} s); "
                f"set {first} above it, and both above 0"
            )
