"""The record of what is known of one block."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Fact:
    """A block is exactly a NumPy array (or scalar) of this shape and dtype.

    Parameters
    ----------
    shape : tuple of int
        Exact.
    dtype : numpy.dtype
        Exact, byte order included.
    fill : numpy.generic, optional
        All elements have the bits of this one.
    scalar : bool
        It is a NumPy scalar instead of an array.

    Examples
    --------
    >>> Fact((2, 3), np.dtype("f8")).nbytes
    48

    Fills are compared bit for bit.

    >>> zeros = Fact((2,), np.dtype("f8"), np.float64(0.0))
    >>> zeros == Fact((2,), np.dtype("f8"), np.float64(-0.0))
    False
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fill: np.generic | None = None
    scalar: bool = False
    #: Facts that stand for all that are equal have one; of others it is 0. Not part of the value.
    number: int = field(default=0, init=False, repr=False)

    def be_numbered(self, number: int) -> None:
        """Give it its number."""
        object.__setattr__(self, "number", number)

    def _identity(self) -> tuple[Any, ...]:
        bits = None if self.fill is None else self.fill.tobytes()
        return (self.shape, self.dtype, bits, self.scalar)

    def __eq__(self, other: object) -> bool:
        return type(other) is Fact and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @classmethod
    def of_array(cls, array: np.ndarray[Any, Any]) -> Fact:
        """The fact of an array at hand."""
        return cls(array.shape, array.dtype)
