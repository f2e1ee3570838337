"""What finalize tasks put together: which blocks of which arrays, and where they belong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, count, takewhile
from math import inf, prod
from types import MethodType
from typing import Any, NamedTuple

import dask.array as da
from dask._task_spec import List, Task, TaskRef
from dask.array.core import finalize

from dask_rewrite.analysis.facts import Fact
from dask_rewrite.graph.places import Empty, Index
from dask_rewrite.passes.site import Site

_LABELLED = frozenset([("xarray.core.dataset", "Dataset"), ("xarray.core.dataarray", "DataArray")])


class Part(NamedTuple):
    """A block of a gathered array: the expression that gives it, and where it belongs."""

    block: Any
    where: Index


class Gathered(NamedTuple):
    """An array that is put together by a finalize task: its blocks by place, and where they start."""

    empty: Empty
    blocks: Mapping[tuple[int, ...], Any]
    starts: Sequence[Sequence[int]]

    @property
    def parts(self) -> Iterator[Part]:
        """The blocks, with where each belongs."""
        for place, block in self.blocks.items():
            yield Part(block, tuple([slice(ends[i], ends[i + 1]) for ends, i in zip(self.starts, place)]))


def gathers(node: Any) -> bool:
    """Whether a task puts blocks of arrays together: of one, or of those of a labelled collection."""
    if type(node) is not Task or not node.args or type(node.args[0]) is not List:
        return False
    if node.func is finalize:
        return len(node.args) == 1
    return _is_labelled(node.func) and _of_arrays(node)


def _is_labelled(func: Any) -> bool:
    if type(func) is not MethodType:
        return False
    owner = func.__self__
    kind = owner if isinstance(owner, type) else type(owner)
    return (kind.__module__, kind.__qualname__) in _LABELLED


def _of_arrays(task: Task) -> bool:
    """Whether what is labelled are arrays of dask, one for each of the nested lists."""
    func: Any = task.func
    if func.__name__ == "_dask_finalize" and len(task.args) == 3:  # its blocks, its name, a Dataset
        func = task.args[2]
    if not _is_labelled(func) or func.__name__ != "_dask_postcompute":
        return False
    data = [each._data for each in func.__self__.variables.values() if hasattr(each._data, "dask")]
    return len(data) == len(task.args[0].args) and all(type(each) is da.Array for each in data)


def most_bytes(trees: Sequence[Any], site: Site) -> tuple[float, int]:
    """Bytes that the blocks of nested lists have at most, as far as it is said, and how many these are."""
    declared, cells = site.context.declared, [block for tree in trees for _, block in _cells(tree)]
    if declared is None:
        return inf, len(cells)
    said = [declared.belief(block.key) if type(block) is TaskRef else None for block in cells]
    return sum([declared.most_bytes if fact is None else fact.nbytes for fact in said]), len(cells)


def array_of_blocks(tree: Any, site: Site) -> Gathered | None:
    """The array of a nested list, from its blocks along each axis; None unless they are known arrays."""
    blocks = dict(_cells(tree))
    origin = next(iter(blocks), ())
    if not origin:
        return None
    starts, dtype = [], None
    for axis in range(len(origin)):
        along = takewhile(blocks.__contains__, ((*origin[:axis], i, *origin[axis + 1 :]) for i in count()))
        facts = [_fact(blocks[place], site) for place in along]
        if any(fact is None or fact.ndim != len(origin) for fact in facts):
            return None
        starts.append(list(accumulate([fact.shape[axis] for fact in facts if fact], initial=0)))
        dtype = facts[0].dtype if facts[0] else None
    if dtype is None or len(blocks) != prod([len(ends) - 1 for ends in starts]):
        return None
    return Gathered(Empty(tuple([ends[-1] for ends in starts]), dtype), blocks, starts)


def fits(gathered: Gathered, site: Site) -> bool:
    """Whether each block is known to be just what belongs into its place."""
    for block, index in gathered.parts:
        fact = _fact(block, site)
        if fact is None or (fact.dtype, fact.shape) != (
            gathered.empty.dtype,
            tuple([part.stop - part.start for part in index]),
        ):
            return False
    return True


def _cells(tree: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
    """What stands in nested lists, and where."""
    level: list[tuple[tuple[int, ...], Any]] = [((), tree)]
    while level and all(type(each) is List for _, each in level):
        level = [((*place, i), each) for place, parts in level for i, each in enumerate(parts.args)]
    yield from level


def _fact(block: Any, site: Site) -> Fact | None:
    """What is proven of a block that is an array whose elements are data."""
    if type(block) is TaskRef:
        fact = site.facts.of(block.key)
    else:
        fact = site.facts.of_node(block) if isinstance(block, Task) else None
    if fact is None or fact.scalar or fact.dtype.hasobject:
        return None
    return fact if fact.dtype.isnative else None  # NumPy may pickle others in the order of the machine
