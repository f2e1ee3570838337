"""Columns of the cells of many tasks, as calls of builtins and of dask's own classes.

A column is what unpickles as an iterable of its cells, in order. Cells of one kind are taken apart: a column
of tasks becomes columns of their arguments, a column of tuples columns of their items, and so on. It
may be read once only, and may go on after its last cell: the reader knows how many rows there are.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain, islice, repeat, starmap
from operator import attrgetter, is_
from types import MethodType
from typing import Any

import numpy as np
from dask._task_spec import Alias, DataNode, Dict, List, NestedContainer, Set, Task, TaskRef, Tuple
from dask.typing import Key
from dask.utils import apply

from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.nodes import args_of, func_of, key_of, kwargs_of, producer_of, value_of
from dask_rewrite.graph.templates import is_template
from dask_rewrite.hook.wire_arrays import stacked
from dask_rewrite.hook.wire_numbers import Call, Constant, Numbers, integers, item_of
from dask_rewrite.hook.wire_parts import FEWEST, Parts

#: How deep columns go into nested cells; what lies deeper is pickled as it is.
DEEPEST = 40

_call_of = attrgetter("__call__")
_CONTAINERS = frozenset([List, Tuple, Set, Dict])
NODES = frozenset([Task, Alias, DataNode])


class _Positions(dict[Key, int]):
    """The row of each key in the table; keys of elsewhere are put at its end."""

    def __missing__(self, key: Key) -> int:
        row = self[key] = len(self)
        return row


class Columns:
    """Writes columns over one table of keys.

    Parameters
    ----------
    keys : list of Key
        The first keys of the table. The keys that tasks refer to besides them follow.

    Attributes
    ----------
    table, refs : list
        The keys and the references to them as they are loaded. Here they are empty: the owner has them filled
        where they are unpickled, before anything is looked up in them.
    """

    def __init__(self, keys: list[Key]) -> None:
        self._keys = keys
        self.positions = _Positions(zip(keys, range(1 << 62)))
        self.table: list[Any] = []
        self.refs: list[Any] = []
        self._key_at = item_of(self.table)
        self._ref_at = item_of(self.refs)
        self._made = ByIdentity[Call]()
        self._deep = False  # within a single value that is written as a column

    # ------------------------------------------------------------------ columns

    def column(self, cells: Sequence[Any], depth: int = 0) -> Any:
        """The column of these cells, of which there is at least one."""
        first = cells[0]
        if all(map(is_, cells, repeat(first))):
            return Constant(self.value(first))
        if len(cells) < FEWEST or depth > DEEPEST:
            return self.rest(cells)
        kind = type(first)
        if len(set(map(type, cells))) > 1:
            return self._split(cells, list(map(type, cells)), depth)
        simple = self._simple(kind, cells)
        if simple is not None:
            return simple
        count = len(set(map(id, cells)))
        if 2 * count <= len(cells):
            distinct = dict(zip(map(id, cells), cells))
            rows = dict(zip(distinct, range(len(distinct))))
            values = list(distinct.values())
            table = Call(list, (self.items(values, depth + 1),))
            return Call(map, (item_of(table), integers(list(map(rows.__getitem__, map(id, cells))))))
        return self._compound(kind, cells, depth, count == len(cells))

    def rest(self, cells: Iterable[Any]) -> list[Any]:
        """A column of cells that have nothing in common."""
        return list(map(self.value, cells))

    def _simple(self, kind: type, cells: Sequence[Any]) -> Any:
        if kind is TaskRef:
            rows = self._rows(list(map(key_of, cells)))
            return Constant(cells[0]) if type(rows) is Constant else Call(map, (self._ref_at, rows))
        if kind is int:
            return integers(cells)
        if kind is bool:
            return Call(map, (bool, integers(list(map(int, cells)))))
        if kind is float:
            raw = array("d", cells).tobytes()
            return Constant(cells[0]) if raw == raw[:8] * len(cells) else Numbers("d", cells)
        if kind is str:
            texts = {text: row for row, text in enumerate(dict.fromkeys(cells))}
            if len(texts) == 1:
                return Constant(cells[0])
            if 2 * len(texts) > len(cells):
                return list(cells)
            return Call(map, (item_of(list(texts)), integers(list(map(texts.__getitem__, cells)))))
        return None

    def _compound(self, kind: type, cells: Sequence[Any], depth: int, unique: bool) -> Any:
        if kind in NODES:
            names = signatures(cells)
            if names.count(names[0]) < len(names):
                return self._split(cells, names, depth)
            return self.nodes(cells, self.column(list(map(key_of, cells)), depth + 1), depth)
        if kind in _CONTAINERS:
            return self._containers(kind, cells, depth)
        if kind is tuple or (kind is list and unique):  # a list that is shared stays shared
            return self._sequences(kind, cells, depth)
        if kind is slice:
            parts = list(map(attrgetter("start", "stop", "step"), cells))
            return Call(map, (slice, *self._transposed(parts, depth)))
        if kind is MethodType:
            if any(cell.__func__ is not Task.__call__ for cell in cells):
                return self.rest(cells)
            # steps of programs
            return Call(map, (_call_of, self.column(list(map(attrgetter("__self__"), cells)), depth + 1)))
        column = stacked(cells) if kind is np.ndarray and unique else None
        return list(cells) if column is None else column

    def _rows(self, wanted: list[Key]) -> Any:
        """A column of the rows of these keys in the table."""
        first = self.positions[wanted[0]]
        if (
            self._keys[first : first + len(wanted)] == wanted
        ):  # most are, and comparing is quicker than hashing
            return integers(range(first, first + len(wanted)))
        return integers(list(map(self.positions.__getitem__, wanted)))

    def _transposed(self, rows: Iterable[Iterable[Any]], depth: int) -> list[Any]:
        return [self.column(cells, depth + 1) for cells in zip(*rows)]

    # ------------------------------------------------------------------ kinds of cells

    def nodes(self, cells: Sequence[Any], keys: Any, depth: int = 0) -> Any:
        """Nodes of one signature under a column of keys."""
        kind = type(cells[0])
        if kind is Alias:
            targets = self._rows(list(map(attrgetter("target"), cells)))
            return Call(map, (Alias, keys, Call(map, (self._key_at, targets))))
        if kind is DataNode:
            return Call(map, (DataNode, keys, self.column(list(map(value_of, cells)), depth + 1)))
        first = cells[0]
        args = self._transposed(map(args_of, cells), depth)
        named: list[Any] = []
        if first.kwargs:
            options = list(map(kwargs_of, cells))
            if all(map(is_, options, repeat(first.kwargs))):
                named = [Constant(self.value(option)) for option in first.kwargs.values()]
            else:
                named = self._transposed(map(dict.values, options), depth)
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
        held = Call(map, (dict, Call(map, (zip, Constant(names), Call(zip, tuple(named))))))
        return Call(map, (apply, Constant(Task), Call(zip, positional), held))

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
        if is_template(value):
            return Call(getattr, (self.value(value.__self__), value.__name__))
        if kind is dict and value and type(next(iter(value.values()))) is Task:
            return Call(dict, ([(key, self.value(item)) for key, item in value.items()],))
        if kind is not Task and not (kind in _CONTAINERS and _is_ordinary(value)):
            return value
        return self._made.of(value, self._call)

    def _call(self, value: Any) -> Call:
        """What makes a task, or a container in its arguments."""
        first: tuple[Any, ...] = ()
        options: dict[str, Any] = {}
        if type(value) is Task:
            first = value.key, self.value(value.func)
            options = {name: self.value(option) for name, option in value.kwargs.items()}
            if value._data_producer:
                options["_data_producer"] = True
        if len(value.args) < FEWEST or self._deep:  # one column in another nests as deep as pickle can go
            args: Any = (*first, *map(self.value, value.args))
            return Call(apply, (type(value), args, options)) if options else Call(type(value), args)
        self._deep = True
        args = Call(chain, (first, self.items(value.args)))
        self._deep = False
        return Call(apply, (type(value), args, options))

    def items(self, cells: Sequence[Any], depth: int = 0) -> Call:
        """The column of these cells, with an end."""
        return Call(islice, (self.column(cells, depth), len(cells)))

    def _split(self, cells: Sequence[Any], names: list[Any], depth: int) -> Any:
        """Columns of the cells of each name, read in turn."""
        parts = Parts(names)
        columns = [self.column(part, depth + 1) for part in parts.of(cells)]
        if parts.rest:
            columns.append(self.rest(parts.left_over(cells)))
        return parts.merged(columns)


def signatures(nodes: Sequence[Any]) -> list[Any]:
    """What nodes have in common that go into the same columns; None for what is no node of dask's own."""
    kinds = list(map(type, nodes))
    if kinds.count(Task) == len(kinds):  # the same as below, without a step in Python for each
        shapes = (map(id, map(func_of, nodes)), map(len, map(args_of, nodes)), map(producer_of, nodes))
        return list(zip(*shapes, map(tuple, map(kwargs_of, nodes))))
    return [
        (id(node.func), len(node.args), node._data_producer, tuple(node.kwargs))
        if kind is Task
        else (kind if kind in NODES else None)
        for kind, node in zip(kinds, nodes)
    ]


def _is_ordinary(cell: Any) -> bool:
    """Whether the class makes the same container of the arguments alone."""
    args = cell.args
    return (
        cell.key is None
        and not cell._data_producer
        and len(cell.kwargs) == 1
        and (len(args) != 1 or not (type(cell) is Dict or isinstance(args[0], cell.klass)))
    )
