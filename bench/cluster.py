"""`grange.testing.cluster()`: from the call to a served API, modules already imported."""

import ssl
import time
import urllib.request


def measure() -> dict[str, float]:
    """One start, after a first one that pays for the imports."""
    from grange.testing import cluster

    with cluster():
        pass
    started = time.perf_counter()
    with cluster() as running:
        context = ssl._create_unverified_context()  # noqa: S323  loopback, our own server
        with urllib.request.urlopen(f"{running.url}/readyz", context=context) as answer:  # noqa: S310  our own server
            if answer.status != 200:
                raise RuntimeError(f"/readyz answered {answer.status}")
        return {"cluster_ready_s": time.perf_counter() - started}
