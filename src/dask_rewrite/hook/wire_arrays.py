"""Many small arrays of one form, such as the states of random generators, as a few large ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from dask_rewrite.hook.wire_numbers import Call

#: Larger arrays are pickled one by one: that costs next to nothing for each of their bytes.
LARGEST = 16_384
#: Rows of one array; where one of them is still needed, all of them stay in memory.
ROWS = 256


def stacked(cells: Sequence[np.ndarray[Any, Any]]) -> Any:
    """A column of arrays, as rows of larger ones; None where they are not all of one form.

    Examples
    --------
    >>> import pickle
    >>> column = stacked([np.array([1, 2]), np.array([3, 4])])
    >>> list(pickle.loads(pickle.dumps(column)))
    [array([1, 2]), array([3, 4])]
    >>> stacked([np.array([1, 2]), np.array([3.0, 4.0])]) is None
    True
    """
    first = cells[0]
    if not first.ndim or not 0 < first.nbytes <= LARGEST or first.dtype.isbuiltin != 1:
        return None
    if first.dtype.hasobject or len({_form(cell) for cell in cells}) > 1 or not first.flags.c_contiguous:
        return None
    tables = [np.stack(cells[start : start + ROWS]) for start in range(0, len(cells), ROWS)]
    for table in tables:
        table.flags.writeable = first.flags.writeable
    return Call(chain.from_iterable, (tables,))


def _form(array: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    flags = array.flags
    return array.dtype, array.dtype.metadata is None, array.shape, flags.c_contiguous, flags.writeable
