"""Sketches of constants: cheap to make, and equal for equal data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

#: Arrays of more bytes are told apart by their first and last items.
SMALL = 1024


def sketches(values: Sequence[Any]) -> list[Hashable]:
    """A sketch of each value; nothing is read of a value that is the only one of its form.

    Examples
    --------
    >>> one, same, other, longer = sketches([np.ones(2), np.ones(2), np.arange(2.0), np.ones(3)])
    >>> one == same, one == other, one == longer
    (True, False, False)
    """
    known: dict[Any, int] = {}  # dtypes and shapes take long to hash
    forms = [known.setdefault(_form(value), len(known)) for value in values]
    times = Counter(forms)
    arrays = {number for form, number in known.items() if type(form) is tuple}
    return [
        (form, _ends(value)) if form in arrays and times[form] > 1 else form
        for form, value in zip(forms, values)
    ]


def _form(value: Any) -> Any:
    kind = type(value)
    if kind is np.ndarray and not value.dtype.hasobject:
        return (value.dtype, value.shape, value.strides)
    return kind


def _ends(array: np.ndarray[Any, Any]) -> Hashable:
    if array.nbytes <= SMALL:
        return array.tobytes()
    return (array.flat[:2].tobytes(), array.flat[-2:].tobytes())
