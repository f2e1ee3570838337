"""Rows in parts, and the columns of the parts as one column again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, compress, islice
from operator import ne, sub
from typing import Any

from dask_rewrite.hook.wire_numbers import Call, integers, item_of

#: Fewer rows than this are not worth columns.
FEWEST = 8


class Parts:
    """Rows in parts, by their names; those of rare names, or of the name None, are left over.

    Parameters
    ----------
    names : list of hashable
        One for each row, of which there is at least one.
    """

    def __init__(self, names: list[Any]) -> None:
        starts: Sequence[int] = [0, *compress(range(1, len(names)), map(ne, names, islice(names, 1, None)))]
        if 4 * len(starts) > len(names):
            starts = range(len(names))
        self._starts = starts
        self._lengths = [1] * len(starts)
        if type(starts) is list:
            self._lengths = list(map(sub, [*starts[1:], len(names)], starts))
            names = [names[start] for start in starts]
        found: dict[Any, int] = {}
        for name, length in zip(names, self._lengths):
            found[name] = found.get(name, 0) + length
        parts = [name for name, length in found.items() if length >= FEWEST and name is not None]
        #: How many parts there are, without what is left over, and whether anything is.
        self.count = len(parts)
        self.rest = len(parts) < len(found)
        codes = dict.fromkeys(found, len(parts)) | dict(zip(parts, range(len(parts))))
        self._turns = list(map(codes.__getitem__, names))

    def of(self, cells: Sequence[Any]) -> list[list[Any]]:
        """The cells of each part."""
        return self._all(cells)[: self.count]

    def left_over(self, cells: Sequence[Any]) -> list[Any]:
        """The cells of no part."""
        return self._all(cells)[self.count]

    def _all(self, cells: Sequence[Any]) -> list[list[Any]]:
        parts: list[list[Any]] = [[] for _ in range(self.count + 1)]
        if type(self._starts) is range:
            for turn, cell in zip(self._turns, cells):
                parts[turn].append(cell)
        else:
            for turn, start, length in zip(self._turns, self._starts, self._lengths):
                parts[turn].extend(cells[start : start + length])
        return parts

    def merged(self, columns: Sequence[Any]) -> Any:
        """One column that takes each cell from the column of its part; what is left over is the last."""
        if len(columns) == 1:
            return columns[0]
        sources = item_of([Call(iter, (column,)) for column in columns])
        turns = Call(map, (sources, integers(self._turns)))
        if type(self._starts) is range:
            return Call(map, (next, turns))
        return Call(chain.from_iterable, (Call(map, (islice, turns, integers(self._lengths))),))
