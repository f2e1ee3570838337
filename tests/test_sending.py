"""Tasks or layers: layers are less to send, tasks hold what was rewritten."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask.array as da
import pytest
from dask._expr import FinalizeCompute, HLGExpr
from dask.base import collections_to_expr

from dask_rewrite import sending
from distributed import Client, LocalCluster


@pytest.fixture
def client() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as found,
    ):
        yield found


def sent(x: Any) -> HLGExpr:
    expression = FinalizeCompute(collections_to_expr((x,))).optimize()
    (found,) = [part for part in expression.walk() if isinstance(part, HLGExpr)][:1]
    return found


def _own(block: Any) -> Any:
    return block + 1


def as_layers(x: Any) -> bool:
    return sent(x).low_level_optimizer is not None


@pytest.mark.usefixtures("on", "client")
def test_what_bounds_memory_goes_out_as_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "SMALL", 100)
    assert as_layers(da.ones((200, 4000), chunks=50).map_blocks(_own, dtype=float))
    x = da.random.default_rng(0).random((200, 4000), chunks=50)
    assert not as_layers(x @ x.T)
    assert not as_layers(da.tensordot(x, x, axes=((1,), (1,))))


@pytest.mark.usefixtures("on", "client")
def test_a_product_is_lowered_whatever_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "SMALL", 100)
    x = da.ones((200, 4000), chunks=50)
    assert sending.most_tasks((x + 1).dask, 1000) == 500
    assert sending.most_tasks((x @ x.T).dask, 1000) is None


def test_without_a_client_everything_is_lowered() -> None:
    x = da.ones((200, 4000), chunks=50)
    assert sending.most_tasks((x + 1).dask, 1000) is None
