"""The inputs of a cluster's tasks, one column over all blocks for each input."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from dask._task_spec import GraphNode, Task, TaskRef, parse_input
from dask.array.core import concatenate_axes
from dask.layers import ArrayBlockIdDep, ArrayChunkShapeDep, ArraySliceDep

from dask_rewrite.graph.nodes import NO_DEPS, NO_KWARGS, Deps, list_of, make_task
from dask_rewrite.lowering.blockwise import Arg, Coords
from dask_rewrite.lowering.convert import Converter
from dask_rewrite.lowering.fused_tasks import Column
from dask_rewrite.lowering.references import References

#: Their values are tuples of slices or numbers: nothing to look into.
_PLAIN_DEPS = (ArraySliceDep, ArrayChunkShapeDep, ArrayBlockIdDep)
_SEQUENCES = frozenset([tuple, list])
_PLAIN = _SEQUENCES | {dict, slice, int, float, str, bool, type, type(None)}


class Columns:
    """Makes the columns; taking a reference demands the task behind it.

    Parameters
    ----------
    references : References
        Hands out the references.
    """

    def __init__(self, references: References) -> None:
        self.references = references
        self.converter = Converter(references)

    def column(self, arg: Arg, wanted: Sequence[Coords]) -> Column:
        """The values of one input for the wanted output blocks."""
        if arg.kind == "node":
            node = self._constant(arg.value)
            deps = _dependencies(node)
            return Column([node] * len(wanted), [deps] * len(wanted) if deps else None)
        where: Sequence[Any] = arg.coord_map
        if all(i == p for i, p in enumerate(where)) and wanted and len(where) == len(wanted[0]):
            coords = wanted
        else:
            coords = [tuple([0 if p == -1 else c[p] if type(p) is int else p for p in where]) for c in wanted]
        if arg.kind == "io":
            return self._io_column(arg.value, coords)
        if arg.kind == "blocks":
            nodes = [self._nested(arg.value, (), c, arg.axes) for c in coords]
            return Column(nodes, [_dependencies(node) for node in nodes])
        table = self.references.blocks.get(arg.value)
        if table is None:
            ref = self.references.ref
            refs = [ref((arg.value, *c)) for c in coords]
        else:
            block, name = self.references.block, arg.value
            refs = [table.get(c) or block(name, c, table) for c in coords]
        return Column(refs, [frozenset((r.key,)) for r in refs])

    def _constant(self, value: Any) -> Any:
        if type(value) is TaskRef:
            return self.references.ref(value.key)
        if isinstance(value, TaskRef):  # a future
            self.references.external.add(value.key)
            return value
        return self.converter.resolve(value, 1) if isinstance(value, GraphNode) else value

    def _io_column(self, dep: Any, coords: Sequence[Any]) -> Column:
        get = dep.get
        values = [get(c, c) for c in coords]
        if type(dep) in _PLAIN_DEPS or _are_plain(values):
            return Column(values, None)
        parsed = [parse_input(value) for value in values]
        if not any(isinstance(value, (GraphNode, TaskRef)) for value in parsed):
            return Column(values, None)
        resolved = [self._constant(value) for value in parsed]
        return Column(resolved, [_dependencies(value) for value in resolved])

    def _nested(self, name: str, done: Coords, coords: Sequence[Any], axes: Sequence[int]) -> Task | TaskRef:
        """Lists of blocks along contracted axes, as dask nests them, concatenated if asked."""
        at = len(done)
        if at == len(coords):
            table = self.references.blocks.get(name)
            return (
                self.references.ref((name, *done))
                if table is None
                else self.references.block(name, done, table)
            )
        if not isinstance(coords[at], list):
            return self._nested(name, (*done, coords[at]), coords, axes)
        made = list_of([self._nested(name, (*done, i), coords, ()) for i in coords[at]])
        if axes:
            return make_task(None, concatenate_axes, (made, list(axes)), NO_KWARGS, made._dependencies)
        return made


def _are_plain(values: list[Any]) -> bool:
    """Nothing but numbers, text, slices, types, and containers of these: nothing to look for."""
    while values:
        kinds = set(map(type, values))
        if not all(kind in _PLAIN or issubclass(kind, np.dtype) for kind in kinds):
            return False
        inner = [v for v in values if type(v) in _SEQUENCES] if not kinds.isdisjoint(_SEQUENCES) else []
        if dict in kinds:
            inner += [v.values() for v in values if type(v) is dict]
        values = list(chain.from_iterable(inner))
    return True


def _dependencies(value: Any) -> Deps:
    if isinstance(value, TaskRef):
        return frozenset((value.key,))
    return value._dependencies if isinstance(value, GraphNode) else NO_DEPS
