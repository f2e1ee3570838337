"""Blocks over which small tasks go together: larger than those of which batches are made."""

from __future__ import annotations

from collections import Counter
from typing import Any

import dask.array as da
import numpy as np

SIDE, BLOCKS = 100, 6  # 80 kB
MADE: Counter[Any] = Counter()


def made(block_id: Any = None) -> Any:
    """A block of a function that nobody knows, which counts its calls."""
    MADE[block_id] += 1
    at = np.arange(SIDE * SIDE, dtype="f8").reshape(SIDE, SIDE)
    return np.sin(at + 1e4 * block_id[0] + 1e6 * block_id[1])


def blocks(side: int = BLOCKS) -> Any:
    chunks = ((SIDE,) * side, (SIDE,) * side)
    return da.map_blocks(made, chunks=chunks, dtype="f8", meta=np.empty((0, 0)))
