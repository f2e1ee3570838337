"""Array classes of their own, as cupy and pint have them: no subclasses of ndarray, converted by nobody."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from dask.array.dispatch import concatenate_lookup


class Duck:
    """An array class of its own, as cupy's is."""

    __array_priority__ = 100

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def like(self, values: np.ndarray) -> Duck:
        """Another one of the kind."""
        return Duck(values)

    shape = property(lambda self: self.values.shape)
    dtype = property(lambda self: self.values.dtype)
    ndim = property(lambda self: self.values.ndim)
    size = property(lambda self: self.values.size)
    nbytes = property(lambda self: self.values.nbytes)

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise TypeError("implicit conversion to a NumPy array is not allowed")

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Duck:
        return self.like(np.asarray(self.values[index]))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        inputs = tuple(i.values if isinstance(i, Duck) else i for i in inputs)
        return self.like(np.asarray(getattr(ufunc, method)(*inputs, **kwargs)))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        def strip(value: Any) -> Any:
            if isinstance(value, Duck):
                return value.values
            return type(value)(map(strip, value)) if isinstance(value, (list, tuple)) else value

        result = func(*map(strip, args), **{k: strip(v) for k, v in kwargs.items()})
        return self.like(result) if isinstance(result, np.ndarray) else result

    def _binary(self, op: Any, other: Any) -> Duck:
        return self.like(np.asarray(op(self.values, other.values if isinstance(other, Duck) else other)))

    def __add__(self, other: Any) -> Duck:
        return self._binary(operator.add, other)

    def __mul__(self, other: Any) -> Duck:
        return self._binary(operator.mul, other)

    __rmul__ = __mul__

    def __sub__(self, other: Any) -> Duck:
        return self._binary(operator.sub, other)

    def astype(self, dtype: Any, **kwargs: Any) -> Duck:
        return self.like(self.values.astype(dtype))

    def transpose(self, axes: Any = None) -> Duck:
        return self.like(self.values.transpose(axes))

    def reshape(self, *shape: Any) -> Duck:
        return self.like(self.values.reshape(*shape))

    def squeeze(self, axis: Any = None) -> Duck:
        return self.like(self.values.squeeze(axis))

    def sum(self, *args: Any, **kwargs: Any) -> Duck:
        return self.like(np.asarray(self.values.sum(*args, **kwargs)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duck) and self.values.tobytes() == other.values.tobytes()

    __hash__ = None


class Quantity(Duck):
    """Numbers of a unit, as pint has them: what has another one is neither added nor joined to it."""

    def __init__(self, values: np.ndarray, unit: str = "m") -> None:
        super().__init__(values)
        self.unit = unit

    def like(self, values: np.ndarray) -> Quantity:
        return Quantity(values, self.unit)

    def _binary(self, op: Any, other: Any) -> Duck:
        if isinstance(other, Quantity) and op is not operator.mul:
            self.check(other)
        return super()._binary(op, other)

    def check(self, other: Quantity) -> None:
        if self.unit != other.unit:
            raise ValueError(f"{self.unit} and {other.unit}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.unit == other.unit and super().__eq__(other)

    __hash__ = None


@concatenate_lookup.register(Duck)
def _concatenate(arrays: Any, axis: int = 0) -> Duck:
    first, *others = arrays
    for other in others if isinstance(first, Quantity) else ():
        first.check(other)
    return first.like(np.concatenate([each.values for each in arrays], axis=axis))
