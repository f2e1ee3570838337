"""Rows of equal legacy tasks over nested lists of keys, converted at once: the steps of dask's reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import Any

from dask._task_spec import GraphNode, TaskRef
from dask.typing import Key

from dask_rewrite.graph.nodes import NO_DEPS, NO_KWARGS, cast_to, make_task
from dask_rewrite.lowering.references import References

#: Fewer rows are converted one by one.
FEWEST = 8
#: Lists that nest deeper are converted one by one: one level for each axis is usual.
DEEPEST = 8
_first = itemgetter(0)

#: The key asked for, the key that the node is to have, and the value.
Row = tuple[Key, Key, Any]


def runs(rows: Sequence[Row]) -> Iterator[tuple[Callable[..., Any] | None, Sequence[Row]]]:
    """The rows in their order, in runs of ``(function, [...])`` with one function, and of anything else."""
    start, last = 0, None
    for i, (_, _, value) in enumerate(rows):
        is_row = type(value) is tuple and len(value) == 2 and type(value[1]) is list and callable(value[0])
        func = value[0] if is_row else None
        if func is not last:
            if i > start:
                yield last, rows[start:i]
            start, last = i, func
    yield last, rows[start:]


def aggregates(
    func: Callable[..., Any], rows: Sequence[Row], references: References
) -> list[GraphNode] | None:
    """The nodes of a run; None if its lists hold anything but keys that the graph has.

    They are the same, and refer to the same, as if each had been converted on its own.
    """
    if len(rows) < FEWEST:
        return None
    lists = [value[1] for _, _, value in rows]
    level: list[Any] = lists
    for _ in range(DEEPEST):
        if set(map(type, level)) == {list} and all(level):
            level = list(chain.from_iterable(level))
    if set(map(type, level)) != {tuple} or not all(level):
        return None
    found = _found(level, references)
    if found is None:
        return None
    waiting = iter(found)
    nodes: list[GraphNode] = []
    for (_, new, _), nested in zip(rows, lists):
        listed = _listed(nested, waiting)
        nodes.append(make_task(new, func, (listed,), NO_KWARGS, listed._dependencies))
    return nodes


def _found(keys: list[tuple[Any, ...]], references: References) -> list[TaskRef] | None:
    """The references to many keys, if they are those of blocks of one layer, or lie in the flat dict."""
    names = set(map(_first, keys)) if all(type(key[0]) is str for key in keys) else ()
    if len(names) != 1:
        return None
    (name,) = names
    table = references.blocks.get(name)
    if table is None:
        flat, refs, new_ref = references.flat, references.refs, references.new_ref
        try:
            if name in references.lazy or not all(map(flat.__contains__, keys)):
                return None
        except TypeError:  # not hashable
            return None
        return [refs.get(key) or new_ref(key) for key in keys]
    numblocks = references.plans[name].numblocks
    if set(map(len, keys)) != {len(numblocks) + 1}:
        return None
    columns = list(zip(*keys))[1:]
    for column, count in zip(columns, numblocks):
        if set(map(type, column)) != {int} or min(column) < 0 or max(column) >= count:
            return None
    known, block = table.get, references.block
    coords = list(zip(*columns)) if columns else [()] * len(keys)
    return [known(c) or block(name, c, table) for c in coords]


def _listed(nested: list[Any], waiting: Iterator[TaskRef]) -> Any:
    """A list of references as legacy tasks have them, or a list of such lists."""
    if type(nested[0]) is tuple:
        refs = tuple(islice(waiting, len(nested)))
        return cast_to(list, None, refs, frozenset([ref.key for ref in refs]))
    inner = tuple([_listed(each, waiting) for each in nested])
    return cast_to(list, None, inner, NO_DEPS.union(*[each._dependencies for each in inner]))
