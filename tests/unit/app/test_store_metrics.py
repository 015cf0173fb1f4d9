"""What a control plane shows of its store."""

from pathlib import Path

from grange.app.store_metrics import StoreMetrics
from grange.base.log import Logger
from grange.base.metrics import exposition, registry
from grange.store.sqlite import SQLiteStore
from grange.store.store_settings import Lanes


async def test_store_metrics_follow_the_store(tmp_path: Path, log: Logger) -> None:
    store = await SQLiteStore.open(tmp_path, log=log, lanes=Lanes.inline())
    try:
        source = registry()
        StoreMetrics(store.statistics, source)
        before = store.statistics()
        await store.put("/a", lambda revision: b"1")
        text = exposition(source).decode()
        assert f"grange_store_keys {before.keys + 1}.0\n" in text
        assert f"grange_store_revision {store.revision}.0\n" in text
        assert "grange_store_waiting_writes 0.0\n" in text
        assert f"grange_store_writes_total {before.writes + 1}.0\n" in text
        assert 'grange_store_transactions_total{outcome="failed"} 0.0\n' in text
    finally:
        await store.close()
