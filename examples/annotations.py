"""Priorities, retries and resources that reach the scheduler.

dask drops `dask.annotate` from arrays when it fuses tasks. Here every task keeps its annotations;
the fragile reader below fails once for every block and is tried again.

    python examples/annotations.py
"""

import dask
import dask.array as da
import numpy as np

import dask_rewrite
from distributed import Client, LocalCluster

tried = set()


def fragile(block_id=None):
    """Read one block; the first try fails."""
    if block_id not in tried:
        tried.add(block_id)
        raise OSError(f"block {block_id} is not there yet")
    return np.full((10, 10), float(sum(block_id)))


def main():
    with dask.annotate(retries=2):
        x = da.map_blocks(fragile, chunks=((10, 10), (10, 10)), dtype=float, meta=np.empty((0, 0)))
    with dask.annotate(priority=10):
        total = (x + 1).sum()

    # One worker in this process, so that `tried` is one set; no dashboard.
    with (
        LocalCluster(1, processes=False, threads_per_worker=2, dashboard_address=None) as cluster,
        Client(cluster),
        dask_rewrite.enable(),
    ):
        answer = total.compute()

    assert answer == 100 * (1 + 2 + 2 + 3)
    assert len(tried) == 4
    print(f"{len(tried)} blocks failed once and were read again: {answer}")


if __name__ == "__main__":
    main()
