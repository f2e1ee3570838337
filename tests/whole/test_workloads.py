"""Every workload of the benchmark builds, and both sides agree on it."""

from __future__ import annotations

import dask
import dask.array as da
import pytest

pytest.importorskip("xarray")
pytest.importorskip("h5py")
pytest.importorskip("zarr")

from benchmarks.harness import figures, sides
from benchmarks.workloads import WORKLOADS


def both_sides(name: str) -> dict[str, tuple[dict, list]]:
    workload = WORKLOADS[name]
    built = workload.build(da, workload.small)
    collections = built if isinstance(built, tuple) else (built,)
    result = {}
    for side in ("stock", "ours"):
        prepared = sides.PREPARE[side](workload, workload.small, collections)
        prepared.reset()
        result[side] = prepared()
    return result


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_stock_and_ours_give_the_same_answer(name):
    graphs = both_sides(name)
    answers = {side: dask.get(graph, keys) for side, (graph, keys) in graphs.items()}
    expected = "yes" if WORKLOADS[name].exact else ("yes", "close")
    assert figures.same(answers["stock"], answers["ours"]) in expected
