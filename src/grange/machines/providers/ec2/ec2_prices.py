"""Prices on demand and shares of processors that are known without asking.

The API that serves instances does not give prices. These are approximate ones of January 2024, for Linux in
us-east-1, in dollars an hour: they rank types, and were not compared with the vendor's list. A pool's
``prices`` replace them. Baselines of burstable instances are of the same date.
"""

from collections.abc import Mapping
from decimal import Decimal

_LARGE: Mapping[str, str] = {
    "c4": "0.1",
    "c5": "0.085",
    "c5a": "0.077",
    "c5d": "0.096",
    "c5n": "0.108",
    "c6a": "0.0765",
    "c6g": "0.068",
    "c6i": "0.085",
    "c7a": "0.10264",
    "c7g": "0.0725",
    "c7i": "0.08925",
    "i3": "0.156",
    "i4i": "0.1716",
    "m4": "0.1",
    "m5": "0.096",
    "m5a": "0.086",
    "m5d": "0.113",
    "m5n": "0.119",
    "m6a": "0.0864",
    "m6g": "0.077",
    "m6i": "0.096",
    "m7a": "0.11592",
    "m7g": "0.0816",
    "m7i": "0.1008",
    "r4": "0.133",
    "r5": "0.126",
    "r5a": "0.113",
    "r5d": "0.144",
    "r6a": "0.1134",
    "r6g": "0.1008",
    "r6i": "0.126",
    "r7g": "0.1071",
    "r7i": "0.1323",
    "t2": "0.0928",
    "t3": "0.0832",
    "t3a": "0.0752",
    "t4g": "0.0672",
}
"""Of the size ``large``, by family; other sizes cost as many times as much as they are larger."""

_SINGLE: Mapping[str, str] = {
    "g4dn.xlarge": "0.526",
    "g4dn.2xlarge": "0.752",
    "g4dn.4xlarge": "1.204",
    "g4dn.8xlarge": "2.176",
    "g4dn.12xlarge": "3.912",
    "g4dn.16xlarge": "4.352",
    "g5.xlarge": "1.006",
    "g5.2xlarge": "1.212",
    "g5.4xlarge": "1.624",
    "g5.8xlarge": "2.448",
    "g5.12xlarge": "5.672",
    "g5.16xlarge": "4.096",
    "g5.24xlarge": "8.144",
    "g5.48xlarge": "16.288",
    "p3.2xlarge": "3.06",
    "p3.8xlarge": "12.24",
    "p3.16xlarge": "24.48",
    "p4d.24xlarge": "32.7726",
}
"""Of types whose price does not follow their size."""

_SIZES: Mapping[str, Decimal] = {
    "nano": Decimal("0.0625"),
    "micro": Decimal("0.125"),
    "small": Decimal("0.25"),
    "medium": Decimal("0.5"),
    "large": Decimal(1),
    "xlarge": Decimal(2),
}

_BASELINES: Mapping[str, int] = {
    "nano": 50,
    "micro": 100,
    "small": 200,
    "medium": 200,
    "large": 300,
    "xlarge": 400,
    "2xlarge": 400,
}
"""Thousandths of each processor that burstable types have all the time, by size."""
# The nano and micro of t2 have one processor where their successors have two.
_BASELINES_T2: Mapping[str, int] = {**_BASELINES, "xlarge": 225, "2xlarge": 170}


def known_price(instance_type: str) -> Decimal | None:
    """The price on demand; None where it is not known."""
    if instance_type in _SINGLE:
        return Decimal(_SINGLE[instance_type])
    family, _, size = instance_type.partition(".")
    times = _SIZES.get(size)
    if times is None and size.endswith("xlarge") and size[:-6].isdecimal():
        times = Decimal(2) * int(size[:-6])
    # Smaller sizes than large are sold of burstable types, and medium of some others, in proportion.
    if family not in _LARGE or times is None:
        return None
    return (Decimal(_LARGE[family]) * times).quantize(Decimal("0.00001"))


def baseline_milli(instance_type: str, processors: int) -> int:
    """Thousandths of a processor that a burstable type has all the time; 0 where not known."""
    family, _, size = instance_type.partition(".")
    shares = _BASELINES_T2 if family == "t2" else _BASELINES
    return shares.get(size, 0) * processors
