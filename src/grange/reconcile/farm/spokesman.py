"""What every member of a group sees for itself, told by one of them.

Theory of operation. The failsafes of all members look at the same objects, so one trouble alarms them
all, a moment apart; a trouble of one of them alone (what it deletes, what its watch shows) must be
told as well. So each member writes on its Lease what it sees, and which of the troubles it tells of.
The first by name of those who are there is the spokesman: it tells of what any of them sees, and of
its end when none of them sees it any more. Who becomes the spokesman goes on with what another one,
who is still there, says that it tells; what a dead one told is told again, or its end is. A member
that sees no other speaks for itself: then people may hear of one trouble twice, under one key.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from grange.api.farm import REPORT_ANNOTATION
from grange.api.kinds.lease import Lease
from grange.api.meta import Document
from grange.base.clock import Clock
from grange.reconcile.farm import leases
from grange.reconcile.farm.alerts import Alert, Alerts
from grange.reconcile.farm.config import FarmConfig
from grange.reconcile.farm.notes import UNSURE_S
from grange.reconcile.informer import Informer


class _Report(msgspec.Struct):
    """Of what a Lease says, that which concerns us; the rest is for people."""

    sees: list[Alert] = []
    tells: list[Alert] = []


_NOTHING = _Report()


@dataclass(frozen=True, slots=True)
class _Voice:
    """Another member, as its Lease was last seen.

    Attributes:
        said: what it says.
        until: when it counts no more, in monotonic seconds; its Lease was deleted, perhaps by
            mistake.
    """

    said: _Report
    until: float = float("inf")


class Spokesman:
    """One member's part in telling what all of them see.

    Args:
        alerts: where the spokesman speaks.
        informer: of the group's Leases.
        config: of the member.
        has_session: whether the member takes part now.
        urge: have our Lease say at once what has changed.
        clock: as everywhere.

    Attributes:
        seen: what this member sees; tell these.
    """

    def __init__(
        self,
        alerts: Alerts,
        informer: Informer[Lease],
        config: FarmConfig,
        *,
        has_session: Callable[[], bool],
        urge: Callable[[], object],
        clock: Clock,
    ) -> None:
        self.seen = Alerts(self)
        self._alerts = alerts
        self._own = config.lease_name(config.member)
        self._ttl_s = config.ttl_s
        self._has_session = has_session
        self._urge = urge
        self._clock = clock
        self._voices: dict[str, _Voice] = {}  # by name of the Lease
        self._tells: dict[str, Alert] = {}  # ours to tell, by key
        self._handing: dict[str, Alert] = {}  # told by us, and nobody has gone on with them yet
        self._orphans: dict[str, tuple[Alert, float]] = {}  # told by one that is gone, and until
        informer.add_handler(self._hear, lambda _, new: self._hear(new), self._gone)

    def report(self) -> Document:
        """What our Lease says of it, for the others."""
        return {
            "sees": [msgspec.to_builtins(alert) for alert in self.seen.active()],
            "tells": [
                msgspec.to_builtins(alert)
                for alert in (*self._tells.values(), *self._handing.values())
            ],
        }

    def tells(self, alert: Alert) -> bool:
        """Whether it is one of those that we tell for all."""
        return alert.key in self._tells

    def look(self) -> None:
        """Tell what is news, if it is ours to tell."""
        now = self._clock.monotonic()
        for name, voice in list(self._voices.items()):
            if voice.until <= now:
                self._end(name)
        going = {
            alert.key: alert
            for alerts in (*(v.said.sees for v in self._voices.values()), self.seen.active())
            for alert in alerts
        }
        told = {alert.key for voice in self._voices.values() for alert in voice.said.tells}
        before = {*self._tells, *self._handing}
        if self._has_session() and all(self._own < name for name in self._voices):
            self._speak(going, told)
        else:
            self._keep_silent(going, told)
        if before != {*self._tells, *self._handing}:
            self._urge()

    def _speak(self, going: dict[str, Alert], told: set[str]) -> None:
        now = self._clock.monotonic()
        over = {key: alert for key, (alert, until) in self._orphans.items() if now < until}
        over.update(self._handing)
        for key, alert in going.items():
            if key not in self._tells:
                known = key in told or key in self._handing
                (self._alerts.adopt if known else self._alerts.fire)(alert)
                self._tells[key] = alert
        for key in [key for key in self._tells if key not in going]:
            over.pop(key, None)
            alert = self._tells.pop(key)
            self._alerts.clear(alert.about, alert.reason)
        self._resolve(alert for key, alert in over.items() if key not in going)
        self._orphans.clear()
        self._handing.clear()

    def _keep_silent(self, going: dict[str, Alert], told: set[str]) -> None:
        for alert in self._tells.values():
            self._alerts.leave(alert.about, alert.reason)
        self._handing.update(self._tells)
        self._tells.clear()
        for key in told.intersection(self._handing):
            del self._handing[key]
        over = [alert for key, alert in self._handing.items() if key not in going]
        for alert in over:
            del self._handing[alert.key]
        self._resolve(over)

    def _resolve(self, alerts: Iterable[Alert]) -> None:
        """Say that it is over, of what somebody has told."""
        for alert in alerts:
            self._alerts.adopt(alert)
            self._alerts.clear(alert.about, alert.reason)

    # --- what we see ----------------------------------------------------------------------------

    def raised(self, alert: Alert) -> None:
        """We see a trouble."""
        self._urge()
        self.look()

    def resolved(self, alert: Alert) -> None:
        """We do not see it any more."""
        self._urge()
        self.look()

    def adopted(self, alert: Alert) -> None:
        """Never: what we see is our own."""

    def left(self, alert: Alert) -> None:
        """Never: what we see is our own."""

    def dropped(self, alert: Alert) -> None:
        """Never: what we see is our own."""

    # --- what the others see --------------------------------------------------------------------

    def _hear(self, lease: Lease) -> None:
        name = lease.metadata.name
        if name == self._own:
            pass  # we know what we said; but we may be there only now
        elif leases.token_of(lease) is None:
            self._end(name)
        else:
            said = _said(lease)
            for alert in said.tells:
                self._orphans.pop(alert.key, None)
            self._voices[name] = _Voice(said)
        self.look()

    def _gone(self, lease: Lease) -> None:
        """Its member may be there: its session goes on until the next renewal, and it comes back."""
        voice = self._voices.get(lease.metadata.name)
        if voice is not None:
            until = self._clock.monotonic() + self._ttl_s
            self._voices[lease.metadata.name] = _Voice(voice.said, until)
        self.look()

    def _end(self, name: str) -> None:
        voice = self._voices.pop(name, None)
        if voice is not None:
            until = self._clock.monotonic() + UNSURE_S
            self._orphans.update({alert.key: (alert, until) for alert in voice.said.tells})


def _said(lease: Lease) -> _Report:
    text = lease.metadata.annotations.get(REPORT_ANNOTATION, "")
    try:
        return msgspec.json.decode(text, type=_Report) if text else _NOTHING
    except msgspec.MsgspecError:
        return _NOTHING  # somebody's hand: the member's next renewal puts it right
