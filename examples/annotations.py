"""Priorities, retries and resources that reach the scheduler.

dask drops `dask.annotate` from arrays when it fuses tasks. Here every task keeps its annotations;
the fragile reader below fails once for every block and is tried again.

    python examples/annotations.py
"""

import logging
import tempfile
from pathlib import Path

import dask
import dask.array as da
import numpy as np

import dask_rewrite
from distributed import Client, LocalCluster


def fragile(folder, block_id=None):
    """Read one block; the first try fails."""
    mark = Path(folder, "-".join(map(str, block_id)))
    if not mark.exists():
        mark.touch()
        raise OSError(f"block {block_id} is not there yet")
    return np.full((10, 10), float(sum(block_id)))


def main(folder):
    logging.getLogger("distributed.worker").setLevel(logging.CRITICAL)  # the failures are meant
    with dask.annotate(retries=2):
        x = da.map_blocks(fragile, folder, chunks=((10, 10), (10, 10)), meta=np.empty((0, 0)))
    with dask.annotate(priority=10):
        total = (x + 1).sum()

    # One worker in this process, without a dashboard: enough for an example.
    with (
        LocalCluster(1, processes=False, threads_per_worker=2, dashboard_address=None) as cluster,
        Client(cluster),
        dask_rewrite.enable(),
    ):
        answer = total.compute()

    assert answer == 100 * (1 + 2 + 2 + 3)
    failed = len(list(Path(folder).iterdir()))
    assert failed == 4
    print(f"{failed} blocks failed once and were read again: {answer}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as marks:
        main(marks)
