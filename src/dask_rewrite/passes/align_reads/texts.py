"""How blocks are put together from reads, over names: the same for all blocks that lie alike."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import List, Task, TaskRef
from dask.array.core import concatenate3
from dask.typing import Key

from dask_rewrite.graph.nodes import call_with_dict, list_of, literal, nameless
from dask_rewrite.graph.program import operation, program_task
from dask_rewrite.graph.writes import written
from dask_rewrite.passes.align_reads.reads import File
from dask_rewrite.passes.align_reads.storage import runs
from dask_rewrite.passes.demand.boxes import Box, index_of, inside, lengths, seen_from
from dask_rewrite.passes.movement.emit import nested
from dask_rewrite.passes.steps import Step

#: Where a block is put together, what it is read from is an eighth of it at most, or has so many bytes.
_RUNS, _RUN_BYTES = 8, 1_048_576
#: The name of the file.
FILE = "file"


class Text(NamedTuple):
    """What gives a box.

    Parameters
    ----------
    made : Task
        Over names: of the file, of units, and of the indexes of reads.
    units : tuple of (str, int)
        The names of the units that are used, and which these are of all that the box touches.
    runs : tuple of (str, Box or None)
        The names of indexes, and where these lie, seen from where the box begins; None is all of it.
    """

    made: Any
    units: tuple[tuple[str, int], ...]
    runs: tuple[tuple[str, Box | None], ...]


def reading(file: File) -> Text:
    """A read of all of the box."""
    return Text(file.read(TaskRef(FILE), TaskRef("index")), (), (("index", None),))


def text_of(file: File, box: Box, units: Sequence[Box], counts: Sequence[int], own: Sequence[bool]) -> Text:
    """What gives a box, from units where these are shared.

    Parameters
    ----------
    file : File
        The file.
    box : Box
        One of those that lie alike.
    units : sequence of Box
        What is read of those that the box touches.
    counts : sequence of int
        How many these are on each axis.
    own : sequence of bool
        Which of these units nobody else needs.
    """
    names = tuple([(f"unit {i}", i) for i, mine in enumerate(own) if not mine])
    if len(units) > 1 and any(own):
        return _written(file, box, units, {i: name for name, i in names}, names)
    parts: list[Any] = [_part(name, units[i], box) for name, i in names]
    if len(parts) == 1:
        (part,) = parts
        return Text(part if type(part) is Task else _whole(part), names, ())
    return Text(operation(concatenate3, (nested(parts, counts),)), names, ())


def _whole(unit: TaskRef) -> Task:
    """All of a unit that another block needs as well."""
    return operation(operator.getitem, (unit, (Ellipsis,)))


def _written(
    file: File, box: Box, units: Sequence[Box], names: Mapping[int, str], shared: tuple[tuple[str, int], ...]
) -> Text:
    """A block that shared units are written into at once, and what is read for it one after the other."""
    itemsize = file.source.dtype.itemsize
    shape = lengths(box)
    most = max(_RUN_BYTES, prod(shape) * itemsize // _RUNS)
    held: list[tuple[tuple[slice, ...], tuple[slice, ...], TaskRef]] = []
    own: list[tuple[tuple[slice, ...], Task]] = []
    read: list[tuple[str, Box]] = []
    for i, unit in enumerate(units):
        there = common(unit, box)
        if i in names:  # the task holds it in any case
            ends = index_of(seen_from(box, there)), index_of(seen_from(unit, there))
            held.append((*ends, TaskRef(names[i])))
            continue
        for run in runs(there, file.chunks, most // itemsize):  # to keep it would only take memory
            name = f"index {len(read)}"
            read.append((name, seen_from(box, run)))
            own.append((index_of(read[-1][1]), file.read(TaskRef(FILE), TaskRef(name))))
    steps: list[Any] = [((np.empty, 0), operation(np.empty, (shape, file.source.dtype)))]
    writes: list[tuple[Sequence[Any], Any]] = [([place], [value]) for place, value in own]
    if held:
        places, indices, refs = map(list, zip(*held))
        writes.insert(0, (places, operation(map, (operator.getitem, list_of(refs), indices))))
    for each in writes:
        write = written(TaskRef(steps[-1][0]), *each)
        steps.append(((np.empty, len(steps)), write))
    return Text(nameless(program_task("", steps, False)), shared, tuple(read))


def _part(name: str, unit: Box, box: Box) -> Any:
    index = inside(common(unit, box), unit)
    return TaskRef(name) if index is None else operation(operator.getitem, (TaskRef(name), index))


def common(one: Box, other: Box) -> Box:
    """What two boxes have in common."""
    return tuple([(max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other)])


def called(key: Key, program: Task, values: Mapping[str, Any], reads: bool) -> Task:
    """A program over names, with what these stand for; ``reads`` if it loads data."""
    given = {name: values[ref.key] for name, ref in program.args[0].kwargs.items()}
    deps = frozenset([value.key for value in given.values() if type(value) is TaskRef])
    return call_with_dict(key, (program.func, *program.args[1:]), given, deps, reads)


def stands_once(value: Any, steps: Iterable[Step]) -> bool:
    """It is an argument of one step, and stands nowhere else in any of them."""
    found = 0
    for step in steps:
        stack = [*step.task.args, *step.task.kwargs.values()]
        while stack:
            here = literal(stack.pop())
            if here is value:
                found += 1
            elif isinstance(here, (tuple, List)):
                stack += here.args if type(here) is List else here
    return found == 1
