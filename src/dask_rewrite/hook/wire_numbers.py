"""Columns of integers in few bytes: ranges, repetitions, differences and the smallest arrays.

Every form is something that can be iterated over in the unpickling process, made by builtins and
`itertools` alone. A repetition may go on for ever: whoever reads it knows how many rows there are.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate, chain, cycle, islice, repeat
from operator import sub
from typing import Any


class Call:
    """What unpickles as the result of ``function(*args)``.

    Iterators of `itertools` are no longer picklable from Python 3.14 on; calls that make them are.

    Examples
    --------
    >>> import pickle
    >>> pickle.loads(pickle.dumps(Call(list, (Call(range, (3,)),))))
    [0, 1, 2]
    """

    __slots__ = ("args", "function")

    def __init__(self, function: Any, args: tuple[Any, ...]) -> None:
        self.function = function
        self.args = args

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.function, self.args


def item_of(table: Any) -> Call:
    """The table's ``__getitem__``."""
    return Call(getattr, (table, "__getitem__"))


class Constant(Call):
    """A column of one and the same object."""

    __slots__ = ()

    def __init__(self, value: Any) -> None:
        super().__init__(repeat, (value,))


class Numbers(Call):
    """A column of numbers of one size.

    It holds what an `array` reduces to: the pickler that distributed falls back to, where a graph holds an
    object that pickle refuses, never gets to the end of an `array` itself.

    Examples
    --------
    >>> import pickle
    >>> pickle.loads(pickle.dumps(Numbers("h", [1, 1000])))
    array('h', [1, 1000])
    """

    __slots__ = ("itemsize",)

    def __init__(self, code: str, cells: Sequence[float]) -> None:
        made = array(code, cells)
        reduced: Any = made.__reduce_ex__(5)
        super().__init__(*reduced[:2])
        self.itemsize = made.itemsize


def integers(cells: Sequence[int]) -> Any:
    """A column of plain integers in the shortest form that is quickly found.

    Examples
    --------
    >>> integers([7, 7, 7]).args
    (7,)
    >>> integers([0, 2, 4, 6])
    range(0, 8, 2)
    >>> integers([3, 1, 4, 1, 5])
    b'\\x03\\x01\\x04\\x01\\x05'
    """
    if type(cells) is range and len(cells) > 1:
        return cells
    cells = cells if type(cells) is list else list(cells)
    found = _pattern(cells)
    if found is not None:
        return found
    plain = _packed(cells)
    if type(plain) is bytes or len(cells) < 3:
        return plain
    steps = list(map(sub, cells[1:], cells))
    found = _pattern(steps)
    if found is None:
        found = _packed(steps)
        if _width(found) >= _width(plain):
            return plain
    return Call(accumulate, (Call(chain, (cells[:1], found)),))


def _pattern(cells: list[int]) -> Any:
    """A constant, a range, or what repeats; None where there is no such pattern."""
    first, count = cells[0], len(cells)
    if cells[-1] == first and cells.count(first) == count:
        return Constant(first)
    step = cells[1] - first
    if step and cells[-1] == first + step * (count - 1):
        whole = range(first, first + step * count, step)
        if cells == list(whole):
            return whole
    if step == 0:
        return _each_repeated(cells)
    return _cycled(cells)


def _each_repeated(cells: list[int]) -> Any:
    """``0 0 0 1 1 1 2 2 2``; None if it is not like that."""
    run = next(i for i, cell in enumerate(cells) if cell != cells[0])
    base = cells[::run]
    if list(chain.from_iterable(map(repeat, base, repeat(run))))[: len(cells)] != cells:
        return _cycled(cells)
    return Call(chain.from_iterable, (Call(map, (repeat, integers(base), Constant(run))),))


def _cycled(cells: list[int]) -> Any:
    """``0 1 2 0 1 2 0 1 2``; None if it is not like that."""
    start = next(i for i, cell in enumerate(cells) if cell != cells[0])
    try:
        period = cells.index(cells[start], start + 1) - start
    except ValueError:
        return None
    count = len(cells)
    if 2 * period > count or (cells[:period] * (count // period + 1))[:count] != cells:
        return None
    return Call(cycle, (_finite(integers(cells[:period]), period),))


def _finite(column: Any, count: int) -> Any:
    """The column with an end: what is repeated has to have one."""
    if type(column) is Numbers or not isinstance(column, Call):
        return column
    return Call(list, (Call(islice, (column, count)),))


def _packed(cells: list[int]) -> Any:
    """The smallest array that holds all of them; a list of what is larger than 64 bits."""
    low, high = min(cells), max(cells)
    if low >= 0 and high < 256:
        return bytes(cells)
    for code in "bhHiIq":
        bits = 8 * array(code).itemsize
        bottom = 0 if code.isupper() else -(1 << (bits - 1))
        if bottom <= low and high < bottom + (1 << bits):
            return Numbers(code, cells)
    return cells


def _width(column: Any) -> int:
    if type(column) is bytes:
        return 1
    return column.itemsize if type(column) is Numbers else 9
