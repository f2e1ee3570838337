"""Files behind xarray: what its lazy arrays read from, where it is known what comes out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dask_rewrite.analysis.knowledge.imported import imported

#: The name of the type that xarray gives to dask as a source.
ADAPTER = "ImplicitToExplicitIndexingAdapter"

_INDEXING = "xarray.core.indexing"
#: Lazy arrays wrap each other a few times.
_MOST_LAYERS = 12
#: Types of numbers that netCDF files store as they are.
_NUMBERS = "biuf"


class File(NamedTuple):
    """What is read from, by a lazy array of xarray or without one."""

    stored: Any  #: an HDF5 dataset, a Zarr array, or a variable of a netCDF file
    chunks: tuple[int, ...] | None  #: how it is stored, where positions in the array are those in the file
    inner: tuple[int, ...] | None = None  #: chunks inside of these, where these are shards
    itemsize: int | None = None  #: bytes of a number that is stored, where it is decoded to another one

    @classmethod
    def of_zarr(cls, stored: Any) -> File:
        """The file of an array of Zarr, or of what xarray opens as one."""
        shards, chunks = getattr(stored, "shards", None), getattr(stored, "chunks", None)
        return cls(stored, shards or chunks, chunks if shards else None)


def file_behind(source: Any) -> File | None:
    """What a lazy array of xarray reads from, if what it reads are just arrays of the dtype that it states.

    Values may be decoded on the way (scales, missing values, byte order), but by functions that are known;
    times, texts and all else are something else. No file is opened for that.
    """
    found = _layers(source)
    if found is None:
        return None
    inner, functions, whole = found
    file, dtype = _stored(inner)
    if file is None or not _gives(functions[::-1], dtype, source.dtype):
        return None
    itemsize = None if dtype.itemsize == source.dtype.itemsize else dtype.itemsize
    return (file if whole else File(file.stored, None))._replace(itemsize=itemsize)


def is_closed(source: Any) -> bool:
    """Whether a lazy array of xarray reads numbers from a netCDF file that is not open, so nothing is known.

    xarray closes the first of them once it has opened more than its option ``file_cache_maxsize``, 128.
    """
    found = _layers(source)
    if found is None or _netcdf(found[0]) is None:
        return False
    datastore = found[0].datastore
    return not getattr(datastore, "is_remote", False) and not _is_open(datastore)


def _layers(source: Any) -> tuple[Any, list[Callable[[Any], Any]], bool] | None:
    """A backend's array below a lazy one, what decodes it (the last first), and if it is all of the file."""
    if type(source).__name__ != ADAPTER or not _is(source, _INDEXING, ADAPTER):
        return None
    inner, functions, whole = source.array, [], True
    for _ in range(_MOST_LAYERS):
        if _is(inner, _INDEXING, "LazilyIndexedArray"):
            whole = whole and all(map(_is_whole, inner.key.tuple))
            if not all(map(_is_plain, inner.key.tuple)):
                return None
        elif not _is(inner, _INDEXING, "CopyOnWriteArray"):
            decoding = _decoding(inner)
            if decoding is None:
                break
            functions.append(decoding)
        inner = inner.array
    return inner, functions, whole


def _is_whole(index: Any) -> bool:
    return type(index) is slice and index == slice(None)


def _is_plain(index: Any) -> bool:
    return type(index) is int or (type(index) is slice and (index.step or 1) > 0)


def _decoding(array: Any) -> Callable[[Any], Any] | None:
    """What an array of xarray's does to what it reads; None if it is of another kind, or not known."""
    if _is(array, "xarray.coding.variables", "NativeEndiannessArray"):
        return partial(np.asarray, dtype=array.dtype)
    kind = type(array)
    if kind.__name__ != "_ElementwiseFunctionArray" or kind.__module__[:14] != "xarray.coding.":
        return None
    func: Any = array.func
    known = [imported("xarray.coding.variables", name) for name in ("_apply_mask", "_scale_offset_decoding")]
    inner = func.func if type(func) is partial else None
    plain = inner is np.asarray and not func.args and func.keywords.keys() == {"dtype"}
    return func if plain or (inner is not None and inner in known) else None


def _gives(functions: list[Callable[[Any], Any]], dtype: Any, wanted: Any) -> bool:
    """Whether decoding makes arrays of this dtype, also of single elements; it is asked itself."""
    try:
        with np.errstate(all="ignore"):
            for value in (np.ones(1, dtype), np.ones((), dtype)):
                for function in functions:
                    value = function(value)
                if type(value) is not np.ndarray or value.dtype != wanted:
                    return False
    except Exception:  # whatever attributes of files make of it
        return False
    return True


def _stored(array: Any) -> tuple[File | None, Any]:
    """What a backend's array reads from, and the dtype that comes out."""
    if _is(array, "xarray.backends.zarr", "ZarrArrayWrapper"):
        found = getattr(array, "_array", None)
        dtype = getattr(found, "dtype", None)
        return (None if found is None else File.of_zarr(found)), dtype
    dtype = getattr(array, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind not in _NUMBERS:
        return None, None
    if _is(array, "xarray.backends.scipy_", "ScipyArrayWrapper"):  # it casts to its dtype
        return File(array, None), dtype
    known = _netcdf(array)
    if known is None or not _is_open(array.datastore):
        return None, None
    with array.datastore.lock:
        return known(array.get_array(needs_lock=False), array.shape), dtype


def _netcdf(array: Any) -> Callable[[Any, tuple[int, ...]], File | None] | None:
    """What knows the variables of a backend's array of numbers in a netCDF file; None for any other array."""
    dtype = getattr(array, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind not in _NUMBERS:
        return None
    if _is(array, "xarray.backends.netCDF4_", "NetCDF4ArrayWrapper"):
        return _of_netcdf4
    return _of_h5netcdf if _is(array, "xarray.backends.h5netcdf_", "H5NetCDFArrayWrapper") else None


def _is_open(datastore: Any) -> bool:
    """Whether a file is at hand: opening thousands of them again would take long."""
    manager = getattr(datastore, "_manager", None)
    if getattr(datastore, "is_remote", False):
        return False
    cache = getattr(manager, "_cache", None)
    return cache is not None and getattr(manager, "_key", None) in cache


def _of_netcdf4(variable: Any, shape: tuple[int, ...]) -> File | None:
    """Numbers in the byte order of this machine, not lists of them and nothing that users defined."""
    if not isinstance(variable.datatype, np.dtype) or not variable.datatype.isnative:
        return None
    chunks = variable.chunking()
    return File(variable, tuple(chunks) if type(chunks) is list else None)


def _of_h5netcdf(variable: Any, shape: tuple[int, ...]) -> File | None:
    """Numbers that h5py reads, in files whose axes have not grown since they were written.

    xarray noted the lengths of the axes when it opened the file; to ask for them again takes long.
    """
    dataset: Any = getattr(variable, "_h5ds", None)
    if not _is(dataset, "h5py", "Dataset") or dataset.shape != shape:
        return None
    return File(variable, dataset.chunks)


def _is(value: Any, module: str, name: str) -> bool:
    """Whether a value is just of a class of a module that has been imported."""
    return type(value) is imported(module, name)
