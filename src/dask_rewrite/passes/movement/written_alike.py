"""Joins of one pattern are written alike: the first of them as any block, the others as that was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dask._task_spec import List, Task, TaskRef
from dask.typing import Key

from dask_rewrite.graph.nodes import NO_KWARGS, list_of, make_task
from dask_rewrite.passes.movement.moves import GETITEMS, JOINS, Block


class _Part(NamedTuple):
    """What stands in a list: which source, and the slice of it, or nothing where it is taken whole."""

    source: int
    func: Any
    index: Any


class WrittenAlike:
    """Remembers how joins were written, by their pattern and what else decides on it.

    A join gives a block in memory of its own, so that nothing depends on who uses it: only on the pattern, on
    the shapes of its sources, and on how these lie in memory.

    Parameters
    ----------
    shape_of : callable
        From the key of a source to its shape.
    ordered : callable
        Whether a source is known to lie in memory in C order.
    """

    def __init__(self, shape_of: Callable[[Key], tuple[int, ...]], ordered: Callable[[Key], bool]) -> None:
        self._shape_of, self._ordered = shape_of, ordered
        self._known: dict[Any, tuple[Task, list[_Part]] | None] = {}

    def name_of(self, task: Task, form: Block) -> Any:
        """What tells how a join is written; None for what is no join, or of no pattern."""
        known = form[0].pattern
        if known is None or id(task.func) not in JOINS:
            return None
        pattern, sources = known
        return (id(pattern), *map(self._shape_of, sources), *map(self._ordered, sources))

    def task(self, key: Key, task: Task, form: Block, name: Any) -> Task | None:
        """The new task for a join, if one of that name was written before."""
        found = self._known.get(name)
        if found is None:
            return None
        sources = form[0].pattern[1]
        refs = [TaskRef(source) for source in sources]
        first, parts = found
        listed = list_of([_written(refs[number], func, index) for number, func, index in parts])
        args = (listed, *first.args[1:])
        return make_task(key, first.func, args, first.kwargs, listed._dependencies, task.data_producer)

    def remember(self, name: Any, form: Block, made: Task) -> None:
        """Remember how a join was written, if it is one list of sources and of slices of them."""
        numbers = {source: i for i, source in enumerate(form[0].pattern[1])}
        items = made.args[0].args if made.args and type(made.args[0]) is List else ()
        parts = [part for each in items if (part := _part(each, numbers)) is not None]
        self._known[name] = (made, parts) if parts and len(parts) == len(items) else None


def _written(ref: TaskRef, func: Any, index: Any) -> Task | TaskRef:
    return ref if func is None else make_task(None, func, (ref, index), NO_KWARGS, frozenset((ref.key,)))


def _part(node: Any, numbers: dict[Key, int]) -> _Part | None:
    if type(node) is TaskRef:
        return _Part(numbers[node.key], None, None)
    ref: Any = node.args[0] if type(node) is Task and id(node.func) in GETITEMS else None
    return _Part(numbers[ref.key], node.func, node.args[1]) if type(ref) is TaskRef else None
