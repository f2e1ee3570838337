"""What dask makes of collections, up to sending, with one optimizer or another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask.config


def expression_of(collections: Sequence[Any], optimizer: Any = None, asked: str = "explain") -> Any:
    """What dask makes of these collections when they are computed with this optimizer, up to sending.

    Without an optimizer it is dask's own.
    """
    from dask._expr import FinalizeCompute
    from dask.base import collections_to_expr

    found = collections_in(collections, asked)
    if optimizer is None:
        from dask.array.optimization import optimize as of_arrays
        from dask.bag.core import optimize as of_bags
        from dask.delayed import optimize as of_delayed
    else:
        of_arrays = of_bags = of_delayed = optimizer
    with dask.config.set(array_optimize=of_arrays, delayed_optimize=of_delayed, bag_optimize=of_bags):
        return FinalizeCompute(collections_to_expr(found)).optimize()


def collections_in(collections: Sequence[Any], asked: str = "explain") -> list[Any]:
    """All dask collections in these, in lists and other containers too.

    Raises
    ------
    TypeError
        If there is none, or something is no collection.
    """
    from dask.base import is_dask_collection, unpack_collections

    from dask_rewrite.hook.collections import kind_of, wrong

    for collection in collections:
        if not is_dask_collection(collection) and not isinstance(collection, (list, tuple, dict, set)):
            raise wrong(asked, kind_of(collection))
    found, _ = unpack_collections(*collections)
    if not found:
        raise wrong(asked, f"a {type(collections[0]).__name__} without any" if collections else "nothing")
    return list(found)
