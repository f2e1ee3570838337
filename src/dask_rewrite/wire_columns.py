"""Columns of the cells of many tasks, as calls of builtins and of dask's own classes.

A column is what unpickles as an iterable of its cells, in order. Cells of one kind are taken apart: a column
of tasks becomes columns of their arguments, a column of tuples columns of their items, and so on. It
may be read once only, and may go on after its last cell: the reader knows how many rows there are.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from itertools import chain, compress, islice, repeat, starmap
from operator import attrgetter, is_, ne, sub
from types import MethodType
from typing import Any

from dask._task_spec import Alias, DataNode, Dict, List, NestedContainer, Set, Task, TaskRef, Tuple
from dask.typing import Key
from dask.utils import apply

from dask_rewrite.wire_numbers import Call, Constant, integers

#: Fewer cells than this are not worth columns.
FEWEST = 8
#: How deep columns go into nested cells; what lies deeper is pickled as it is.
DEEPEST = 40

_CONTAINERS = frozenset([List, Tuple, Set, Dict])
NODES = frozenset([Task, Alias, DataNode])
_key = attrgetter("key")


class _Positions(dict[Key, int]):
    """The row of each key in the table; keys of elsewhere are put at its end."""

    def __missing__(self, key: Key) -> int:
        row = self[key] = len(self)
        return row


class Columns:
    """Writes columns over one table of keys.

    Parameters
    ----------
    keys : iterable of Key
        The first keys of the table. The keys that tasks refer to besides them follow.

    Attributes
    ----------
    table : Call
        The table as it is loaded; its arguments are for the owner to fill in when all columns are written.
    """

    def __init__(self, keys: Iterable[Key]) -> None:
        self.positions = _Positions(zip(keys, range(1 << 62)))
        self.table = Call(list, ())
        self._key_at = _item_of(self.table)
        self._ref_at = _item_of(Call(list, (Call(map, (TaskRef, self.table)),)))
        self._made: dict[int, tuple[Any, Any]] = {}

    # ------------------------------------------------------------------ columns

    def column(self, cells: Sequence[Any], depth: int = 0) -> Any:
        """The column of these cells, of which there is at least one."""
        first = cells[0]
        if all(map(is_, cells, repeat(first))):
            return Constant(self.value(first))
        if len(cells) < FEWEST or depth > DEEPEST:
            return self.rest(cells)
        kinds = list(map(type, cells))
        if kinds.count(kinds[0]) < len(kinds):
            return self._split(cells, kinds, depth)
        simple = self._simple(kinds[0], cells)
        if simple is not None:
            return simple
        distinct = dict(zip(map(id, cells), cells))
        if 2 * len(distinct) <= len(cells):
            rows = dict(zip(distinct, range(len(distinct))))
            values = list(distinct.values())
            table = Call(list, (Call(islice, (self.column(values, depth + 1), len(values))),))
            return Call(map, (_item_of(table), integers(list(map(rows.__getitem__, map(id, cells))))))
        return self._compound(kinds[0], cells, depth, len(distinct) == len(cells))

    def rest(self, cells: Iterable[Any]) -> list[Any]:
        """A column of cells that have nothing in common."""
        return list(map(self.value, cells))

    def _simple(self, kind: type, cells: Sequence[Any]) -> Any:
        if kind is TaskRef:
            rows = integers(self._rows(map(_key, cells)))
            return Constant(cells[0]) if type(rows) is Constant else Call(map, (self._ref_at, rows))
        if kind is int:
            return integers(cells)
        if kind is bool:
            return Call(map, (bool, integers(list(map(int, cells)))))
        if kind is float:
            numbers = array("d", cells)
            raw = numbers.tobytes()
            return Constant(cells[0]) if raw == raw[:8] * len(cells) else numbers
        if kind is str:
            texts = {text: row for row, text in enumerate(dict.fromkeys(cells))}
            if len(texts) == 1:
                return Constant(cells[0])
            if 2 * len(texts) > len(cells):
                return list(cells)
            return Call(map, (_item_of(list(texts)), integers(list(map(texts.__getitem__, cells)))))
        return None

    def _compound(self, kind: type, cells: Sequence[Any], depth: int, unique: bool) -> Any:
        if kind in NODES:
            signatures = list(map(signature, cells))
            if signatures.count(signatures[0]) < len(signatures):
                return self._split(cells, signatures, depth)
            return self.nodes(cells, self.column(list(map(_key, cells)), depth + 1), depth)
        if kind in _CONTAINERS:
            return self._containers(kind, cells, depth)
        if kind is tuple or (kind is list and unique):  # a list that is shared stays shared
            return self._sequences(kind, cells, depth)
        if kind is slice:
            parts = list(map(attrgetter("start", "stop", "step"), cells))
            return Call(map, (slice, *self._transposed(parts, depth)))
        return list(cells)

    def _rows(self, keys: Iterable[Key]) -> list[int]:
        return list(map(self.positions.__getitem__, keys))

    def _transposed(self, rows: Iterable[Sequence[Any]], depth: int) -> list[Any]:
        return [self.column(cells, depth + 1) for cells in zip(*rows)]

    # ------------------------------------------------------------------ kinds of cells

    def nodes(self, cells: Sequence[Any], keys: Any, depth: int = 0) -> Any:
        """Nodes of one signature under a column of keys."""
        kind = type(cells[0])
        if kind is Alias:
            targets = integers(self._rows(map(attrgetter("target"), cells)))
            return Call(map, (Alias, keys, Call(map, (self._key_at, targets))))
        if kind is DataNode:
            return Call(map, (DataNode, keys, self.column(list(map(attrgetter("value"), cells)), depth + 1)))
        first = cells[0]
        args = self._transposed(map(attrgetter("args"), cells), depth)
        named = self._transposed((task.kwargs.values() for task in cells), depth) if first.kwargs else []
        if type(keys) is Constant and all(type(cell) is Constant for cell in chain(args, named)):
            return Constant(self.value(first))
        positional = (keys, Constant(self.value(first.func)), *args)
        names = list(first.kwargs)
        if first._data_producer:
            names.append("_data_producer")
            named.append(Constant(True))
        if not names:
            return Call(map, (Task, *positional))
        if all(type(cell) is Constant for cell in named):
            make = partial(Task, **dict(zip(names, (cell.args[0] for cell in named))))
            return Call(map, (make, *positional))
        options = Call(map, (dict, Call(map, (zip, Constant(names), Call(zip, tuple(named))))))
        return Call(map, (apply, Constant(Task), Call(zip, positional), options))

    def _containers(self, kind: type, cells: Sequence[NestedContainer], depth: int) -> Any:
        if not all(map(_is_ordinary, cells)):
            return list(cells)
        rows = [cell.args for cell in cells]
        if len(rows[0]) <= 4 and len(set(map(len, rows))) == 1 and rows[0]:
            return Call(map, (kind, *self._transposed(rows, depth)))
        flat = list(chain.from_iterable(rows))
        if not flat:
            return self.rest(cells)
        items = Call(iter, (self.column(flat, depth + 1),))
        lengths = integers(list(map(len, rows)))
        return Call(starmap, (kind, Call(map, (tuple, Call(map, (islice, Constant(items), lengths))))))

    def _sequences(self, kind: type, cells: Sequence[Any], depth: int) -> Any:
        lengths = list(map(len, cells))
        if lengths.count(lengths[0]) < len(lengths):
            return self._split(cells, lengths, depth)
        if not lengths[0]:
            return Call(map, (kind, Constant(())))
        columns = self._transposed(cells, depth)
        if kind is tuple:
            if all(type(column) is Constant for column in columns):
                return Constant(cells[0])
            return Call(zip, tuple(columns))
        return Call(map, (list, Call(zip, tuple(columns))))

    # ------------------------------------------------------------------ single values

    def value(self, value: Any) -> Any:
        """The value, or a call that makes it: pickled tasks hold sets, in an order that hashes decide."""
        kind = type(value)
        if kind is MethodType and type(value.__self__) is Task:
            return Call(getattr, (self.value(value.__self__), value.__name__))
        if kind is dict and value and type(next(iter(value.values()))) is Task:
            return Call(dict, ([(key, self.value(item)) for key, item in value.items()],))
        if kind is not Task and not (kind in _CONTAINERS and _is_ordinary(value)):
            return value
        known = self._made.get(id(value))
        if known is not None:
            return known[1]
        args = tuple(map(self.value, value.args))
        if kind is not Task:
            made = Call(kind, args)
        else:
            options = {name: self.value(option) for name, option in value.kwargs.items()}
            if value._data_producer:
                options["_data_producer"] = True
            positional = (value.key, self.value(value.func), *args)
            made = Call(apply, (Task, positional, options)) if options else Call(Task, positional)
        self._made[id(value)] = value, made
        return made

    def _split(self, cells: Sequence[Any], signatures: Sequence[Hashable], depth: int) -> Any:
        """Columns of the cells of each signature, read in turn."""
        codes, parts, rest = parted(signatures)
        columns = [self.column([cells[row] for row in part], depth + 1) for part in parts]
        if rest:
            columns.append(self.rest([cells[row] for row in rest]))
        return merged(columns, codes)


def signature(node: Any) -> Hashable:
    """What nodes have in common that go into the same columns."""
    if type(node) is not Task:
        return id(type(node))
    return id(node.func), len(node.args), node._data_producer, *node.kwargs


def parted(signatures: Sequence[Hashable]) -> tuple[list[int], list[list[int]], list[int]]:
    """The part of each row, the rows of each part, and the rows left over: these are the last part."""
    found: dict[Hashable, list[int]] = {}
    for row, name in enumerate(signatures):
        if name in found:
            found[name].append(row)
        else:
            found[name] = [row]
    parts = {name: rows for name, rows in found.items() if len(rows) >= FEWEST and name is not None}
    codes = dict.fromkeys(found, len(parts))
    codes.update(zip(parts, range(len(parts))))
    part_of = list(map(codes.__getitem__, signatures))
    rest = [row for row, part in enumerate(part_of) if part == len(parts)]
    return part_of, list(parts.values()), rest


def merged(columns: Sequence[Any], codes: list[int]) -> Any:
    """One column that takes each cell from the column that its code names."""
    if len(columns) == 1:
        return columns[0]
    sources = _item_of([Call(iter, (column,)) for column in columns])
    starts = [0, *compress(range(1, len(codes)), map(ne, codes, islice(codes, 1, None)))]
    if 8 * len(starts) > len(codes):
        return Call(map, (next, Call(map, (sources, integers(codes)))))
    lengths = list(map(sub, [*starts[1:], len(codes)], starts))
    turns = Call(map, (sources, integers([codes[start] for start in starts])))
    return Call(chain.from_iterable, (Call(map, (islice, turns, integers(lengths))),))


def _item_of(table: Any) -> Call:
    return Call(getattr, (table, "__getitem__"))


def _is_ordinary(cell: Any) -> bool:
    """Whether the class makes the same container of the arguments alone."""
    args = cell.args
    return (
        cell.key is None
        and not cell._data_producer
        and len(cell.kwargs) == 1
        and (len(args) != 1 or not (type(cell) is Dict or isinstance(args[0], cell.klass)))
    )
