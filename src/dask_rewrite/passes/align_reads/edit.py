"""New tasks for the reads of one file."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise, product
from math import prod
from typing import Any

import numpy as np
from dask._task_spec import DataNode, List, Task, TaskRef
from dask.array.core import concatenate3
from dask.typing import Key
from dask.utils import key_split

from dask_rewrite.graph.graph import Graph, Nodes
from dask_rewrite.graph.names import fingerprint
from dask_rewrite.graph.nodes import NO_KWARGS, make_task, nameless, under
from dask_rewrite.graph.program import operation, program_task
from dask_rewrite.graph.writes import written
from dask_rewrite.passes.align_reads.reads import File
from dask_rewrite.passes.align_reads.storage import Box, cuts, runs, touched
from dask_rewrite.passes.site import Site
from dask_rewrite.passes.steps import assembled, steps_of

#: Where a block is put together, what it is read from is an eighth of it at most, or has so many bytes.
_RUNS, _RUN_BYTES = 8, 262_144


class Edit:
    """New tasks for the reads of one file."""

    def __init__(self, file: File, site: Site, name: str) -> None:
        self.file = file
        self.site = site
        self.nodes: Nodes = {}
        self.units: dict[Box, Key] = {}
        self._cuts: list[list[int]] = []
        self._times: Counter[Box] = Counter()  # by how many blocks a unit is used
        assert file.example is not None
        self._getter = file.example.func
        layer = key_split(next(iter({**file.reads, **file.inside})))
        self._name = f"{layer}-aligned-{fingerprint([name, site.graph.origin.token, file.key])}"

    def read(self, key: Key, box: Box) -> Task:
        """A read of a box."""
        example = self.file.example
        assert example is not None
        index = tuple([slice(a, b, None) for a, b in box])
        options = [arg.value if type(arg) is DataNode else arg for arg in example.args[2:]]
        args = (TaskRef(self.file.key), index, *options)
        deps = frozenset((self.file.key,))
        return make_task(key, example.func, args, example.kwargs or NO_KWARGS, deps, True)

    def cut(self, boxes: Sequence[Box], first: int = 0) -> None:
        """Settle where units begin and end: along the file's chunks from the axis ``first`` on."""
        self._cuts = cuts(boxes, self.file.chunks, self.file.source.shape, first)

    def hold(self, boxes: Sequence[Box]) -> tuple[int, int]:
        """How many chunks are decoded for the units, and the bytes of units that wait for a second block.

        Blocks are taken to be made one after the other, in the order in which they lie in the file.
        """
        touching = [list(product(*self._ranges(box))) for box in sorted(boxes)]
        self._times = Counter(chain.from_iterable(touching))
        decoded = sum([touched(unit, self.file.chunks) for unit in self._times])
        left = {unit: times for unit, times in self._times.items() if times > 1}
        bytes_of = {unit: prod([b - a for a, b in unit]) * self.file.source.dtype.itemsize for unit in left}
        now = most = 0
        for units in touching:
            shared = [unit for unit in units if unit in left]
            now += sum([bytes_of[unit] for unit in shared if left[unit] == self._times[unit]])
            most = max(most, now)
            for unit in shared:
                left[unit] -= 1
                if not left[unit]:
                    now -= bytes_of[unit]
        return decoded, most

    def _ranges(self, box: Box) -> list[list[tuple[int, int]]]:
        """The units that a box touches, by their ranges on each axis."""
        return [
            [(a, b) for a, b in pairwise(column) if a < high and b > low]
            for column, (low, high) in zip(self._cuts, box)
        ]

    def count(self, box: Box) -> int:
        """From how many units a box is put together."""
        return prod(map(len, self._ranges(box)))

    def _unit(self, unit: Box) -> Key:
        key = self.units.get(unit)
        if key is None:
            key = self.units[unit] = (self._name, *[a for a, _ in unit])
            self.nodes[key] = self.read(key, unit)
        return key

    def expression(self, box: Box) -> Any:
        """What gives a box, from units where these are shared."""
        ranges = self._ranges(box)
        if all(self._times[unit] == 1 for unit in product(*ranges)):
            return nameless(self.read("", box))
        units = list(product(*ranges))
        if len(units) > 1 and any(self._times[unit] == 1 for unit in units):
            return self._written(units, box)
        parts: list[Any] = [self._part(unit, box) for unit in units]
        if len(parts) == 1:
            return parts[0]
        for column in reversed(ranges):
            parts = [List(*parts[i : i + len(column)]) for i in range(0, len(parts), len(column))]
        return operation(concatenate3, (parts[0],))

    def _written(self, units: Sequence[Box], box: Box) -> Task:
        """A block that its parts are written into one after the other: one of them is there at a time."""
        itemsize = self.file.source.dtype.itemsize
        shape = tuple([b - a for a, b in box])
        most = max(_RUN_BYTES, prod(shape) * itemsize // _RUNS)
        parts: list[tuple[Box, Any]] = []
        for unit in units:
            inside = tuple(map(_common, unit, box))
            if self._times[unit] == 1:  # nobody else needs it: to keep it would only take memory
                runs_of = runs(inside, self.file.chunks, most // itemsize)
                parts += [(run, nameless(self.read("", run))) for run in runs_of]
            else:
                parts.append((inside, self._part(unit, box)))
        steps: list[Any] = [((np.empty, 0), operation(np.empty, (shape, self.file.source.dtype)))]
        for part, value in parts:
            index = tuple([slice(a - c, b - c, None) for (a, b), (c, _) in zip(part, box)])
            block = TaskRef(steps[-1][0])
            steps.append(((np.empty, len(steps)), written(block, [index], [value])))
        return nameless(program_task("", steps, False))

    def _part(self, unit: Box, box: Box) -> Any:
        ref = TaskRef(self._unit(unit))
        inside = tuple(map(_common, unit, box))
        if inside == unit:
            return ref
        index = tuple([slice(a - c, b - c, None) for (a, b), (c, _) in zip(inside, unit)])
        return operation(operator.getitem, (ref, index))

    def block(self, key: Key, box: Box) -> Task:
        """A block that was read, or made of reads, from units."""
        made = self.expression(box)
        if type(made) is TaskRef:  # the same box as another's
            made = operation(operator.getitem, (made, (Ellipsis,)))
        if made.func is self._getter:
            return self.read(key, box)
        if made.func is operator.getitem and not self.site.read_only(key):
            made = operation(np.array, (made,), {"order": "C"})
        reads = self.file.key in made._dependencies
        return under(key, made, reads)

    def around(self, key: Key, made: Any) -> Task:
        """A task that reads among other things, with something else in the place of the read."""
        node: Any = self.site.graph.nodes[key]
        if type(made) is not Task:
            made = operation(operator.getitem, (made, (Ellipsis,)))
        steps = []
        for step in steps_of(node, self.site.facts):
            task = step.task
            first = task.args[0] if task.args else None
            if type(first) is TaskRef and first.key == self.file.key:
                task = made
            steps.append((step, task))
        return assembled(key, steps, self.file.key in made._dependencies)

    def graph(self) -> Graph:
        """The graph with what was made."""
        graph = self.site.graph
        nodes = {**graph.nodes, **self.nodes}
        self.site.context.without_unused(nodes, graph.outputs)
        annotations = graph.annotations
        if annotations:
            first = next(iter({**self.file.reads, **self.file.inside}))
            if first in annotations:
                units = dict.fromkeys(self.units.values(), annotations[first])
                graph = replace(graph, annotations={**annotations, **units})
        return graph.with_nodes(nodes)


def _common(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """What two ranges have in common."""
    return max(one[0], other[0]), min(one[1], other[1])
