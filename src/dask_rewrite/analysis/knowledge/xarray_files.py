"""Zarr arrays behind xarray: what its lazy arrays read from, where they do nothing but read."""

from __future__ import annotations

import sys
from typing import Any

#: The name of the type that xarray gives to dask as a source.
ADAPTER = "ImplicitToExplicitIndexingAdapter"

_INDEXING = "xarray.core.indexing"
_WHOLE = slice(None, None, None)


def zarr_behind(source: Any) -> Any:
    """The Zarr array that a lazy array of xarray stands for as a whole; None for anything else.

    What decodes values on the way (scales, missing values, times) is something else.
    """
    if type(source).__name__ != ADAPTER or not _is(source, _INDEXING, ADAPTER):
        return None
    inner: Any = source.array
    if _is(inner, _INDEXING, "CopyOnWriteArray"):
        inner = inner.array
    if not _is(inner, _INDEXING, "LazilyIndexedArray"):
        return None
    if any(type(part) is not slice or part != _WHOLE for part in inner.key.tuple):
        return None
    variable = inner.array
    if not _is(variable, "xarray.backends.zarr", "ZarrArrayWrapper"):
        return None
    found = getattr(variable, "_array", None)
    return found if getattr(found, "dtype", None) == source.dtype else None


def _is(value: Any, module: str, name: str) -> bool:
    """Whether a value is just of a class of a module that has been imported."""
    return type(value) is getattr(sys.modules.get(module), name, None)


__all__ = ["ADAPTER", "zarr_behind"]
