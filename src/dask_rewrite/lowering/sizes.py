"""How many tasks layers stand for, counted without making them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, product
from math import prod
from operator import itemgetter
from typing import Any

from dask._task_spec import Alias, Task, TaskRef
from dask.highlevelgraph import HighLevelGraph, Layer
from dask.typing import Key

from dask_rewrite.graph.names import layer_name
from dask_rewrite.lowering.blockwise import Plan
from dask_rewrite.lowering.overlap import OverlapBlocks
from dask_rewrite.lowering.references import References

#: Tasks that are read together.
_BATCH = 1 << 16


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


def surely_above(limit: int, refs: References) -> bool:
    """Whether more tasks than that remain whatever is fused: each block that another layer asks for stays.

    A walk from the outputs through the tasks that are there, and through layers of which all blocks are
    needed; it ends with the limit.
    """
    if sum(not issubclass(type(refs.flat.get(key)), TaskRef) for key in refs.outputs) > limit:
        return True  # futures are no tasks, but each other output is one
    tasks, seen, layers = 0, set[Key](), _Unmade(refs)
    stack: list[Sequence[Key]] = [refs.outputs]
    while stack or (stack := layers.below()):
        found = layers.take(stack.pop(), seen)
        for start in range(0, len(found), _BATCH):
            more, below = _read([refs.flat.get(key) for key in found[start : start + _BATCH]])
            tasks += more
            stack.append(below)
        if tasks + layers.count > limit:
            return True
    return tasks + layers.count > limit


class _Unmade:
    """What is asked of layers whose tasks are not made yet: Blockwise and overlaps."""

    def __init__(self, refs: References) -> None:
        self.plans = refs.plans
        self.overlaps = {name: each for name, each in refs.lazy.items() if type(each) is OverlapBlocks}
        self.asked: dict[Any, set[Key]] = {name: set() for name in (*self.plans, *self.overlaps)}
        self.stay: dict[str, int] = {}  # tasks of layers that are needed as a whole
        self.whole: set[str] = set()

    @property
    def count(self) -> int:
        """Tasks that surely stay."""
        return sum(
            self.stay.get(name, len(keys) * (overlap.least if (overlap := self.overlaps.get(name)) else 1))
            for name, keys in self.asked.items()
        )

    def take(self, keys: Sequence[Key], seen: set[Key]) -> list[Key]:
        """Note the keys of these layers; the others come back if they are new."""
        names = set(map(layer_name, keys))
        if len(names) == 1 and (asked := self.asked.get(*names)) is not None:
            asked.update(keys)
            return []
        if names.isdisjoint(self.asked):
            fresh = set(keys) - seen
            seen |= fresh
            return list(fresh)
        new = []
        for key in keys:
            asked = self.asked.get(layer_name(key))
            if asked is not None:
                asked.add(key)
            elif key not in seen:
                seen.add(key)
                new.append(key)
        return new

    def below(self) -> list[Sequence[Key]]:
        """Keys of tasks that are needed since all blocks of a layer are."""
        made: list[Sequence[Key]] = []
        ready = [name for name, keys in self.asked.items() if len(keys) == prod(self._counts(name))]
        while ready:
            name = ready.pop()
            if name in self.whole:
                continue
            self.whole.add(name)
            overlap = self.overlaps.get(name)
            if overlap is not None:
                self.stay[name] = overlap.made
                inputs = {overlap.source: overlap.numblocks}
                if overlap.source in self.plans:
                    self.stay[overlap.source] = prod(overlap.numblocks)
            else:
                inputs = _all_read(self.plans[name])
            for source, counts in inputs.items():
                if source not in self.asked:
                    made.append([(source, *coords) for coords in product(*map(range, counts))])
                elif counts == self._counts(source):
                    ready.append(source)
        return made

    def _counts(self, name: str) -> tuple[int, ...]:
        return (self.plans.get(name) or self.overlaps[name]).numblocks


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
        elif type(value) is tuple and value and callable(value[0]):
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
    if surely_above(limit, refs):
        raise over_limit(limit)
