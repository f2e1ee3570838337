"""Writing batches: where each input of their rows comes from, other batches first of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain, groupby, repeat
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from dask._task_spec import GraphNode, Task, TaskRef
from dask.typing import Key

from dask_rewrite.graph.batches import batch, one_of
from dask_rewrite.graph.nodes import NO_KWARGS, key_of, list_of, make_task, needs_of
from dask_rewrite.graph.substitute import with_values


class Batch(NamedTuple):
    """Tasks that become one.

    Parameters
    ----------
    key : Key
        The key of the new task.
    members : sequence of Key
        The tasks.
    template : bound method
        What each of them computes, see `dask_rewrite.graph.batches.batch`.
    columns : sequence of sequences or tasks
        By input what the members have in its place, or what gives that.
    producer : bool
        Whether they load or create data.
    """

    key: Key
    members: Sequence[Key]
    template: Any
    columns: Sequence[Any]
    producer: bool


#: Where the result of a task is to be found: in which batch, in which row.
Place: TypeAlias = tuple[Key, int]

_batch_of: Callable[[Place], Key] = itemgetter(0)
_picker = lru_cache(1024)(itemgetter)


class Writer:
    """Writes batches, given what all of them are.

    Parameters
    ----------
    batches : sequence of Batch
        All that are to be written.
    """

    def __init__(self, batches: Sequence[Batch]) -> None:
        self.places: dict[Key, Place] = {}
        for each in batches:
            self.places.update(zip(each.members, zip(repeat(each.key), range(len(each.members)))))
        self._sizes = {each.key: len(each.members) for each in batches}

    def written(self, members: Batch) -> Task:
        """The task of a batch."""
        columns = [self._column(cells) for cells in members.columns]
        return batch(members.key, members.template, columns, len(members.members), members.producer)

    def without_members(self, node: GraphNode) -> GraphNode:
        """A node that takes what it needs out of batches."""
        places = self.places
        inside = [(dep, places[dep]) for dep in node._dependencies if dep in places]
        return with_values(node, {dep: one_of(*place) for dep, place in inside}) if inside else node

    def _column(self, cells: Any) -> Any:
        if type(cells) is Task:  # what all rows take their parts of
            return cells
        if type(cells[0]) is not TaskRef:
            return list(cells)
        keys = list(map(key_of, cells))
        places = list(map(self.places.get, keys))
        if keys.count(keys[0]) == len(keys):
            source = cells[0] if places[0] is None else one_of(*places[0])
            return make_task(None, repeat, (source, len(keys)), NO_KWARGS, needs_of([source]))
        inside = [place for place in places if place is not None]
        if len(inside) == len(places):
            runs = [(key, [row for _, row in run]) for key, run in groupby(inside, _batch_of)]
            if len(runs) == 1:
                (key, rows) = runs[0]
                return TaskRef(key) if rows == list(range(self._sizes[key])) else _picked(key, rows)
            if 2 * len(runs) <= len(cells):
                parts = [_picked(*run) for run in runs]
                return make_task(None, chain, tuple(parts), NO_KWARGS, needs_of(parts))
        parts = [cell if place is None else one_of(*place) for cell, place in zip(cells, places)]
        return list_of(parts)


def _picked(key: Key, rows: list[int]) -> Task:
    """The results of some rows of a batch, one after the other."""
    start, stop = rows[0], rows[0] + len(rows)
    if rows == list(range(start, stop)):
        return one_of(key, slice(start, stop))
    return make_task(None, _picker(*rows), (TaskRef(key),), NO_KWARGS, frozenset([key]))
