"""Assignments to one block, one after the other."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from dask._task_spec import DataNode, Task, TaskRef
from dask.array import chunk
from dask.array.slicing import setitem
from dask.typing import Key

from dask_rewrite.analysis.facts import Fact
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.nesting import survey
from dask_rewrite.graph.program import Step, operation, program_task
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.graph.writes import written
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.setitem.augmented import NOTHING, Own, own_value
from dask_rewrite.passes.site import Site

#: Values of at most so many bytes are put into the task though others have them too.
TINY = 64
#: Values of at most so many bytes are put into the task if nobody else has them.
SMALL = 4096
#: Bytes of other blocks that a task may wait for, where its own block is smaller.
ROOM = 2**20

_ARRAYS = (np.ndarray, np.ma.MaskedArray)
_SETITEM = frozenset([id(setitem)])
_SLICES = (operator.getitem, chunk.getitem)


@dataclass(frozen=True, slots=True)
class Setitem:
    """``setitem(setitem(x, v, i), w, j)`` → one task that copies ``x`` once and writes twice.

    Dask makes a task of every assignment to a block, and each copies the whole block. Legal where nobody
    else has the version in between: then it is private to the task, and can be written into in place.
    The first write is dask's own, which copies. Later ones are dask's own too, and copy again, where the
    value is not known to be an array with elements, or the index could have to be cleaned.

    Parameters
    ----------
    max_inputs : int
        Blocks that one task may wait for.
    max_unknown : int
        The same for blocks of unknown size.
    """

    name: ClassVar[str] = "setitem"
    max_inputs: int = 16
    max_unknown: int = 4

    def run(self, graph: Graph, context: Context) -> Graph:
        found = {task.key: task for task in context.calling(graph, _SETITEM)}
        below = {
            key: task.args[0].key
            for key, task in found.items()
            if len(task.args) == 3 and type(task.args[0]) is TaskRef and task.args[0].key in found
        }
        if not below:
            return graph
        site = Site(graph, context)
        links = {key: under for key, under in below.items() if self._may_join(key, under, site)}
        absorbed = set(links.values())
        for top in [key for key in links if key not in absorbed]:
            chain = [top]
            while chain[-1] in links:
                chain.append(links[chain[-1]])
            block = _fact(found[chain[-1]].args[0], site)  # assignments leave shape and dtype alone
            for batch in self._batches([found[key] for key in reversed(chain)], block, site):
                if len(batch) < 2 or not context.remarks.allow(self.name, batch[-1].task.key):
                    continue
                task = joined(batch, block)
                site.replace(task.key, {task.key: task})
                context.remarks.applied(self.name, task.key, f"assignments: {len(batch)}", len(batch) - 1)
        return site.graph

    def _may_join(self, key: Key, under: Key, site: Site) -> bool:
        task = site.graph.nodes[key]
        assert isinstance(task, Task)
        private = site.used_once(under)
        if not private and not site.wanted(under):
            users = {key, *[each.key for each in own_value(task, site).tasks]}
            private = users.issuperset(site.consumers(under))
        if not private or survey(task)[1].count(under) != 1:
            site.context.remarks.missed(
                self.name, key, "others use the block as it was before the assignment"
            )
            return False
        if not site.same_annotations(key, under):
            site.context.remarks.missed(self.name, key, "annotations differ")
            return False
        return True

    def _batches(self, tasks: Sequence[Task], block: Fact | None, site: Site) -> list[list[_Write]]:
        """Cut a chain, first assignment first, so that no task waits for too much."""
        # values that lie in different parts of the block are no larger than the block
        most = max(block.nbytes if block else 0, ROOM)
        batches: list[list[_Write]] = []
        inputs: dict[Key, int | None] = {}  # with their sizes
        for task in tasks:
            write = _read(task, site)
            mine = {key: known.nbytes if (known := site.facts.of(key)) else None for key in write.inputs}
            both = {**inputs, **mine}
            if not batches or (len(both) > len(inputs) and not self._fits(both, most)):
                batches.append([])
                both = mine
            batches[-1].append(write)
            inputs = both
        return batches

    def _fits(self, inputs: Mapping[Key, int | None], most: int) -> bool:
        sizes = inputs.values()
        unknown = sum(size is None for size in sizes)
        return (
            len(inputs) < self.max_inputs and unknown <= self.max_unknown and sum(filter(None, sizes)) <= most
        )


class _Write(NamedTuple):
    """One assignment: what is written, as far as it is known, and the blocks that it waits for."""

    task: Task
    value: Any  #: a literal, or the node that stands in the task
    filled: bool  #: known to be an array with elements
    masked: bool  #: known to be a masked array
    inputs: frozenset[Key]
    own: Own  #: tasks that make the value of the block itself


def _read(task: Task, site: Site) -> _Write:
    value, indices = task.args[1:]
    inputs = operation(list, (indices,))._dependencies
    literal = _literal(value, site)
    if literal is not None:
        masked = isinstance(literal, np.ma.MaskedArray)
        return _Write(task, literal, literal.size > 0, masked, inputs, NOTHING)
    own = own_value(task, site) if type(task.args[0]) is TaskRef else NOTHING
    made = {each.key for each in own.tasks}
    inputs = inputs.union(
        operation(list, (value,))._dependencies, *[each._dependencies for each in own.tasks]
    )
    inputs -= {*made, task.args[0].key} if own.tasks else made
    fact = _fact(value, site)
    return _Write(task, value, fact is not None and math.prod(fact.shape) > 0, False, inputs, own)


def _fact(node: Any, site: Site) -> Fact | None:
    return site.facts.of(node.key) if type(node) is TaskRef else None


def _literal(node: Any, site: Site) -> Any:
    """The array that a value is known to be, if it is small enough to stand in every task; else None."""
    if type(node) is TaskRef:
        shared = not site.used_once(node.key)
        node = site.node(node.key)
        if type(node) is Task and node.func in _SLICES and len(node.args) == 2 and not node.kwargs:
            return None if shared else _sliced(*node.args, site)
    else:
        shared = False
    value: Any = node.value if type(node) is DataNode else None
    if type(value) not in _ARRAYS or value.nbytes > (TINY if shared else SMALL):
        return None
    return value


def _sliced(source: Any, index: Any, site: Site) -> Any:
    """A small part of data that stands in the graph."""
    node = site.node(source.key) if type(source) is TaskRef else source
    value = node.value if type(node) is DataNode else None
    if type(value) is not np.ndarray or value.dtype.hasobject or type(index) is not tuple:
        return None
    if not all(type(part) in (int, slice) for part in index) or len(index) != value.ndim:
        return None
    try:
        part = value[index]
    except IndexError:  # happens when the graph runs
        return None
    return part.copy() if type(part) is np.ndarray and part.nbytes <= SMALL else None


def _plain_index(indices: Any, shape: tuple[int, ...] | None) -> tuple[Any, ...] | None:
    """The index that dask's ``setitem`` would use, if that can be told: it drops integers beyond a block."""
    if type(indices) is not list:
        return None
    index: list[Any] = []
    for axis, each in enumerate(indices):
        if type(each) is np.ndarray:
            if each.dtype != bool and (shape is None or axis >= len(shape) or (each >= shape[axis]).any()):
                return None
            index.append(each)
        elif type(each) is slice:
            index.append(slice(_plain(each.start), _plain(each.stop), _plain(each.step)))
        elif type(each) is int or isinstance(each, np.integer):
            index.append(int(each))
        else:
            return None
    return tuple(index)


def _plain(end: Any) -> Any:
    return int(end) if isinstance(end, np.integer) else end  # NumPy's integers are large when pickled


def joined(writes: Sequence[_Write], fact: Fact | None) -> Task:
    """One task for assignments that follow each other, under the key of the last."""
    block = writes[0].task.args[0]
    shape = fact.shape if fact is not None else None
    steps: list[Step] = []
    run: list[tuple[Any, Any]] = []
    private = masked = False

    def step(expression: Task) -> TaskRef:
        name: Any = (setitem, len(steps))  # a function in it: equal to no key
        steps.append((name, expression))
        return TaskRef(name)

    def flush() -> None:
        nonlocal block
        if run:
            block = step(written(block, *zip(*run)))
            run.clear()

    for write in writes:
        indices, value = write.task.args[2], write.value
        if write.own.tasks:
            flush()
            names = {write.task.args[0].key: block}
            for task in write.own.tasks:
                made = with_values(task, names)
                names[task.key] = value = step(made)  # the last one makes the value
            private = private and not write.own.shares
        if private and write.filled and (masked or not write.masked):
            index = _plain_index(indices, shape)
            if index is not None:
                run.append((index, value))
                continue
        flush()
        block = step(operation(setitem, (block, value, indices)))
        private = private or write.filled
        masked = masked or (write.filled and write.masked)
    flush()
    return program_task(writes[-1].task.key, steps, any(write.task.data_producer for write in writes))
