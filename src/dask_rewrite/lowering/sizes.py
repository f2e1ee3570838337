"""How many tasks layers stand for, counted without making them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import prod
from operator import itemgetter
from typing import Any

import numpy as np
from dask._task_spec import Alias, Task, TaskRef
from dask.highlevelgraph import HighLevelGraph, Layer, MaterializedLayer
from dask.typing import Key
from toolz import groupby

from dask_rewrite.graph.kinds import is_call
from dask_rewrite.graph.names import layer_name
from dask_rewrite.lowering.blockwise import Plan
from dask_rewrite.lowering.overlap import OverlapBlocks
from dask_rewrite.lowering.references import References

#: Keys of one layer that are looked at: so many runs of neighbours, which may ask for the same blocks.
_RUNS, _RUN = 16, 256


class OverBudget(Exception):
    """Lowering would make more tasks, or take more time, than the options allow."""


def over_limit(limit: int) -> OverBudget:
    """More tasks than that."""
    return OverBudget(f"more than {limit:,} tasks (rewrite.lower-limit)")


def tasks_in(layer: Layer) -> int:
    """How many tasks a layer stands for. Only layers of unknown kinds are made for it.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.ones((3000, 3000), chunks=1)
    >>> tasks_in(x.dask.layers[x.name])
    9000000
    """
    return OverlapBlocks(layer).tasks if OverlapBlocks.fits(layer) else len(layer)


def tasks_of(hlg: HighLevelGraph) -> int:
    """How many tasks all layers stand for."""
    return sum(map(tasks_in, hlg.layers.values()))


def probably_above(limit: int, refs: References) -> bool:
    """Whether more tasks than that remain whatever is fused: each block that another layer asks for stays.

    A walk from the outputs, layer by layer. Where many keys are asked of a layer, some stand for all: this
    decides what is worth trying, not what is right, and tasks are counted again as they are made. It is exact
    up to 4,096 keys asked of a layer, and 65,536 references in their tasks.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.ones((300, 300), chunks=1).sum()
    >>> refs = References(x.dask, x.__dask_keys__(), annotated=False)
    >>> refs.read_layers(reversed(x.dask.layers))
    >>> probably_above(110_000, refs), probably_above(130_000, refs)
    (True, False)
    """
    if sum(not issubclass(type(refs.flat.get(key)), TaskRef) for key in refs.outputs) > limit:
        return True  # futures are no tasks, but each other output is one
    walk = _Walk(refs)
    walk.ask(refs.outputs, 1)
    return any(tasks > limit for tasks in walk.totals())


class _Walk:
    """How many tasks stay, at least, by what is asked of each layer."""

    def __init__(self, refs: References) -> None:
        self.refs = refs
        self.overlaps = {name: each for name, each in refs.lazy.items() if type(each) is OverlapBlocks}
        self.tasks = 0.0
        self.seen: set[Key] = set()
        self.keys: dict[Any, list[Key]] = {}  # asked of a layer, and not looked at yet
        self.count: dict[Any, float] = {}  # for how many they stand
        self.room: dict[Any, float] = {}  # how many tasks of a layer are not asked for yet
        self.whole: dict[str, bool] = {}  # all its blocks are needed; whether they are counted

    def ask(self, keys: Iterable[Key], scale: float) -> None:
        """Note keys, each of which stands for so many."""
        fresh = [key for key in dict.fromkeys(keys) if key not in self.seen]
        self.seen.update(fresh)
        for name, found in groupby(layer_name, fresh).items():
            layer = name if name in self.refs.hlg.layers else None  # tasks that have names of their own
            self.keys.setdefault(layer, []).extend(found)
            self.count[layer] = self.count.get(layer, 0) + len(found) * scale

    def totals(self) -> Iterator[float]:
        """Tasks after each layer that is looked at, those first that ask others."""
        for name in chain([None], self.refs.order):
            yield self._look(name)
            while None in self.keys:
                yield self._look(None)
        while self.keys or not all(self.whole.values()):  # a layer asked one that comes before it
            for name in [*self.keys, *[name for name, counted in self.whole.items() if not counted]]:
                yield self._look(name)

    def _look(self, name: Any) -> float:
        keys, count = self.keys.pop(name, []), self.count.pop(name, 0)
        numblocks = self._numblocks(name)
        if numblocks is None and keys:
            layer = self.refs.hlg.layers.get(name)
            there = layer if isinstance(layer, MaterializedLayer) else self.refs.flat
            count = min(count, self.room.get(name, len(there)))
            self.room[name] = self.room.get(name, len(there)) - count
            some = _some(keys)
            tasks, found = _read([self.refs.flat.get(key) for key in some])
            self.tasks += tasks * count / len(some)
            asked = _some(found, 16 * _RUN)
            self.ask(asked, count / len(some) * len(found) / max(1, len(asked)))
        elif numblocks is not None and not self.whole.get(name):
            overlap = self.overlaps.get(name)
            if count >= prod(numblocks) or name in self.whole:
                self.whole[name] = True
                self.tasks += overlap.made if overlap else min(count, prod(numblocks))
                self._need_all(overlap, name)
            else:
                self.tasks += count * (overlap.least if overlap else 1)
        return self.tasks

    def _need_all(self, overlap: OverlapBlocks | None, name: str) -> None:
        """All blocks of a layer are needed, and so what it reads."""
        reads = {overlap.source: overlap.numblocks} if overlap else _all_read(self.refs.plans[name])
        for source, counts in reads.items():
            numblocks = self._numblocks(source)
            if numblocks is None:
                places = _some(range(prod(counts)))
                coords = np.array(np.unravel_index(places, counts)).T.tolist() if counts else [[]]
                self.ask([(source, *each) for each in coords], prod(counts) / len(places))
            elif counts == numblocks:
                self.whole.setdefault(source, False)
                if overlap:  # which nothing fuses with
                    self.count[source] = self.count.get(source, 0) + prod(counts)

    def _numblocks(self, name: Any) -> tuple[int, ...] | None:
        """Blocks along each axis of a layer whose tasks are not made yet."""
        found = self.refs.plans.get(name) or self.overlaps.get(name)
        return found.numblocks if found else None


def _some(keys: Sequence[Any], run: int = _RUN) -> Sequence[Any]:
    """Runs of neighbours from all over these, or all if they are few."""
    if len(keys) <= _RUNS * run:
        return keys
    starts = range(0, len(keys) - run + 1, (len(keys) - run) // (_RUNS - 1))
    return list(chain.from_iterable(keys[start : start + run] for start in starts))


def _all_read(plan: Plan) -> dict[str, tuple[int, ...]]:
    """How many blocks of each input are read along each axis, if all blocks of a layer are made."""
    found = {}
    for arg in plan.args.values():
        axes = [axis for axis in arg.coord_map if type(axis) is int and axis >= 0]
        if arg.kind in ("block", "blocks") and len(set(axes)) == len(axes):
            found[arg.value] = tuple(
                [
                    len(set(axis)) if isinstance(axis, list) else 1 if axis < 0 else plan.numblocks[axis]
                    for axis in arg.coord_map
                ]
            )
    return found


def _read(values: list[Any]) -> tuple[int, list[Key]]:
    """How many of these are tasks, and what may be keys in them; those that are none do not matter."""
    tasks = 0
    found: list[Any] = []
    legacy: list[Any] = []
    for value in values:
        if type(value) is Task:
            tasks += 1
            found.extend(value.dependencies)
        elif type(value) is Alias:  # counted under its target's name
            found.append(value.target)
        elif is_call(value):
            tasks += 1
            legacy.extend(value[1:])
        elif type(value) in (tuple, str):  # another name for something
            legacy.append(value)
    while legacy:
        kinds = set(map(type, legacy))
        if kinds == {list}:  # as reductions have it
            legacy = list(chain.from_iterable(legacy))
            continue
        if kinds == {tuple} and all(legacy) and set(map(type, map(itemgetter(0), legacy))) == {str}:
            found.extend(legacy)
            break
        inner: list[Any] = []
        for value in legacy:
            if type(value) is list:
                inner.extend(value)
            elif type(value) is str:
                found.append(value)
            elif type(value) is tuple and value:
                if type(value[0]) is str:
                    found.append(value)
                elif callable(value[0]):
                    inner.extend(value[1:])
        legacy = inner
    try:
        hash(tuple(found))
    except TypeError:
        found = [key for key in found if _is_key(key)]
    return tasks, found


def _is_key(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def check_size(refs: References, limit: int) -> None:
    """Raise `OverBudget` at once where what the outputs need is too much."""
    if len(refs.flat) + sum(prod(plan.numblocks) for plan in refs.plans.values()) <= limit:
        return
    if probably_above(limit, refs):
        raise over_limit(limit)
