"""Getters: what comes out of arrays in memory and of files, whose types are known exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from dask.array import core

from dask_rewrite.analysis.knowledge.blocks import NUMBERS, array, like, stand_in
from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.analysis.knowledge.imported import imported
from dask_rewrite.analysis.knowledge.known import Known
from dask_rewrite.analysis.knowledge.movement import getitem
from dask_rewrite.analysis.knowledge.xarray_files import ADAPTER, File, file_behind

#: Names of the types of files.
FILES = frozenset(["Dataset", "Array", ADAPTER])


class Source(NamedTuple):
    """Stands for a file whose slices are NumPy arrays of just the dtype that it states.

    Parameters
    ----------
    shape : tuple of int
        Of the whole.
    dtype : numpy.dtype
        Of every slice.
    lazy : bool
        Slices become arrays when they are converted to such.
    in_order : bool
        Slices lie in memory in C order, as libraries make them unless told otherwise.
    chunks : tuple of int, optional
        How it is stored, where that is known.
    inner : tuple of int, optional
        Chunks that can be read by themselves, where those are shards.
    itemsize : int, optional
        Bytes of a number as it is stored, where it is decoded to another one.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    lazy: bool = False
    in_order: bool = False
    chunks: tuple[int, ...] | None = None
    inner: tuple[int, ...] | None = None
    itemsize: int | None = None


def source_of(value: Any) -> Any:
    """What stands for a value of one of the `FILES`: itself where its slices are not known."""
    file = file_of(value)
    if file is None:
        return value
    in_order = getattr(file.stored, "order", None) == "C"  # of Zarr
    in_order |= type(file.stored).__name__ in ("Dataset", "Variable")
    lazy = type(value).__name__ == ADAPTER
    known = file.chunks, file.inner, file.itemsize
    return Source(tuple(value.shape), value.dtype, lazy, in_order, *known)


def getter(a: Any, b: Any, asarray: Any = True, lock: Any = None) -> Any:
    """``core.getter``: of an array in memory, an HDF5 dataset or a Zarr array.

    Examples
    --------
    >>> getter(np.zeros((4, 5)), (slice(1, 3), slice(None)))
    Fact(shape=(2, 5), dtype=dtype('float64'), fill=None, scalar=False)
    """
    if array(a) is not None:
        found = getitem(a, b)
    else:
        index = b if type(b) is tuple else (b,)
        if not stores_plain_numbers(a) or not all(map(_is_read_alike, index)):
            return None
        if type(a) is Source and a.lazy and (asarray is not True or None in index):
            return None
        found = like(stand_in(Fact(tuple(a.shape), a.dtype))[index])
        if found is None or (found.scalar and (not asarray or None in index or not a.dtype.isnative)):
            return None
    if type(found) is Fact and found.scalar and asarray:
        return replace(found, scalar=False)  # scalars become arrays
    return found


def _is_read_alike(index: Any) -> bool:
    """Whether files take such an index for what NumPy takes it."""
    if type(index) is slice:
        return (index.step or 1) > 0
    return index is None or (type(index) is int and index >= 0)


def stores_plain_numbers(source: Any) -> bool:
    """Whether slices of a source are NumPy arrays of just the dtype that it states."""
    return type(source) is Source or file_of(source) is not None


def file_of(source: Any) -> File | None:
    """The file of a source whose slices are NumPy arrays of just the dtype that it states."""
    kind = type(source)
    if kind.__name__ == "Dataset" and kind is imported("h5py", "Dataset"):
        known = source.shape is not None and source.dtype.kind in NUMBERS
        return File(source, source.chunks) if known else None
    if kind.__name__ == "Array" and kind is imported("zarr", "Array"):
        known = isinstance(source.dtype, np.dtype) and source.dtype.kind in NUMBERS and _in_memory(source)
        return File.of_zarr(source) if known else None
    if kind.__name__ != ADAPTER:
        return None
    found = file_behind(source)
    if found is not None and type(found.stored).__name__ == "Array" and file_of(found.stored) is None:
        return None
    return found


def _in_memory(source: Any) -> bool:
    """Whether Zarr reads into memory of the host, not of another device."""
    meta = getattr(source, "_meta_array", None)
    if meta is not None:  # before Zarr 3
        return type(meta) is np.ndarray
    prototype: Any = imported("zarr.core.buffer", "default_buffer_prototype")
    cpu: Any = imported("zarr.core.buffer.cpu", "NDBuffer")
    return prototype is not None and cpu is not None and prototype().nd_buffer is cpu


#: What is known of functions that read blocks: files may change between two reads.
LOADING: dict[Callable[..., Any], Known] = {
    of_dask(core, "getter"): Known(getter, pure=False, fresh=False),
    of_dask(core, "getter_nofancy"): Known(getter, pure=False, fresh=False),
    of_dask(core, "getter_inline"): Known(getter, pure=False, fresh=False),
}
#: The same functions, by identity.
LOADING_IDS = frozenset(map(id, LOADING))


def is_unknown_source(func: Callable[..., Any], source: Any) -> bool:
    """Whether a getter takes what it gives from something of which nothing is known, whatever the index."""
    return func in LOADING and array(source) is None and not stores_plain_numbers(source)
