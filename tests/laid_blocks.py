"""Blocks that lie in memory in all ways, and what makes them: functions, and files of another library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np


def fortran(block: Any) -> Any:
    return np.asfortranarray(block)


def strided(block: Any) -> Any:
    """The same values, with gaps between all of them."""
    return np.repeat(block, 2, axis=-1)[..., ::2] if block.ndim else block


def backwards(block: Any) -> Any:
    return block[..., ::-1].copy()[..., ::-1] if block.ndim else block


def wide(block: Any) -> Any:
    """The same values, within rows that are longer."""
    return np.concatenate([block, block], axis=-1)[..., : block.shape[-1]] if block.ndim else block


def turned(block: Any) -> Any:
    """The first axis lies last in memory."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(block, 0, -1)), -1, 0) if block.ndim else block


LAYOUTS: list[Callable[[Any], Any]] = [fortran, strided, backwards, wide, turned, np.ascontiguousarray]


class File:
    """What is read lies as it did."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.shape, self.dtype, self.ndim = values.shape, values.dtype, values.ndim

    def __getitem__(self, index: Any) -> np.ndarray:
        return np.array(self.values[index], order="K")


def made_by_function(values: np.ndarray, chunks: Any, made_of: Callable[[Any], Any], name: str) -> da.Array:
    """Blocks of a function that nobody knows, which is told where in the array a block stands."""

    def load(block_info: Any = None) -> Any:
        place = block_info[None]["array-location"]
        return made_of(values[tuple([slice(*ends) for ends in place])].copy())

    meta = np.empty((0,) * values.ndim, values.dtype)
    return da.map_blocks(load, chunks=chunks, dtype=values.dtype, meta=meta, name=name)
