"""Blocks of a result that is gathered: each is written where it belongs as soon as it is there."""

from __future__ import annotations

import operator
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, TypeAlias

import dask.config
from dask._task_spec import List, Task, TaskRef
from dask.array.core import finalize
from dask.callbacks import Callback
from dask.typing import Key
from toolz import identity

from dask_rewrite.graph.batches import one_of
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.names import fingerprint, marked
from dask_rewrite.graph.nesting import check_depth, deepest
from dask_rewrite.graph.nodes import list_of, nameless
from dask_rewrite.graph.places import Index, all_placed, array_of, new_room, part_of, placed
from dask_rewrite.graph.program import Step, operation, program_task
from dask_rewrite.graph.writes import written
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.place_blocks.gathered import Gathered, array_of_blocks, fits, gathers, most_bytes
from dask_rewrite.passes.site import Site

#: Smaller results are gathered as dask does, and so are those of smaller blocks on the average.
MIN_BYTES, MIN_BLOCK = 2**20, 2**18
#: Under a limit: results so many times smaller.
_SMALL = 64
#: Tasks are nested no deeper than this when they become part of another one.
_DEEPEST = 30
_PROCESSES = ("processes", "multiprocessing")


#: The number of an array, and a part of it.
_Where: TypeAlias = tuple[int, Index]


@dataclass(frozen=True, slots=True)
class PlaceBlocks:
    """``finalize([[x0, x1], ...])`` → ``r = empty(...)``, ``r[i] = x_i`` in the task that makes it, ``r``.

    Dask holds all blocks of a result until the last of them is there, and then as much again: the array that
    it copies them into. Here that array is there first, each task writes its block into it, and the block can
    go. Legal where all blocks are proven to be NumPy arrays of one dtype that fit together, on schedulers of
    this process. The finalize task still copies each block to where it belongs: what has been written there
    by its own task is left alone by NumPy; where tasks have run in another process after all, it is not
    there yet.

    Parameters
    ----------
    min_bytes : int
        Smaller results are gathered as dask does.
    min_block : int
        So are those whose blocks are smaller, on the average.
    """

    name: ClassVar[str] = "place-blocks"
    min_bytes: int = MIN_BYTES
    min_block: int = MIN_BLOCK

    def run(self, graph: Graph, context: Context) -> Graph:
        wanted = map(graph.nodes.get, graph.outputs)
        found = [task for task in wanted if isinstance(task, Task) and gathers(task)]
        if not found or graph.annotations or not _is_in_this_process(context) or not _passes_on():
            return graph
        site, made = Site(graph, context), dict[Key, Any]()
        for task in found:
            gathered = self._gathered(task, site)
            if gathered is None or not context.remarks.allow(self.name, task.key):
                continue
            made.update(_Writing(site, task, gathered).nodes())
            said = f"blocks that are written into the result: {sum([len(each.blocks) for each in gathered])}"
            context.remarks.applied(self.name, task.key, said)
        return graph.with_nodes({**graph.nodes, **made}) if made else graph

    def _gathered(self, task: Task, site: Site) -> list[Gathered] | None:
        """The arrays that a task puts together, if it is worth while to write blocks into them."""
        trees = [task.args[0]] if task.func is finalize else task.args[0].args
        limit = site.context.options.memory_limit
        if not self._is_worth(*most_bytes(trees, site), limit):
            return None  # known before anything is proven of what the blocks come from
        found = []
        for tree in trees:
            one = array_of_blocks(tree, site)
            if one is None:
                return None
            found.append(one)
        nbytes, blocks = sum([each.empty.nbytes for each in found]), sum([len(each.blocks) for each in found])
        if not self._is_worth(nbytes, blocks, limit):
            return None
        return found if all(fits(each, site) for each in found) else None

    def _is_worth(self, nbytes: float, blocks: int, limit: int | None) -> bool:
        if limit is not None:
            return nbytes * _SMALL >= limit
        return nbytes >= max(self.min_bytes, self.min_block * blocks)


def _is_in_this_process(context: Context) -> bool:
    """Whether tasks share memory, and nobody keeps their results for another computation."""
    if context.machine.workers > 1 or dask.config.get("scheduler", None) in _PROCESSES:
        return False
    if (module := sys.modules.get("dask.cache")) is None:
        return True
    watching = [getattr(func, "__self__", None) for each in Callback.active for func in each]
    return not any(isinstance(each, module.Cache) for each in watching)


def _passes_on() -> bool:
    """Whether dask's function returns what the copy of a single block is, as :func:`_as_block` has it."""
    whole = object()
    try:
        return finalize(SimpleNamespace(copy=lambda: whole)) is whole
    except Exception:
        return False


def _as_block(whole: Task) -> Task:
    """An array as the only block of a result: dask copies single blocks, and this one is its own copy."""
    return operation(SimpleNamespace, (), {"copy": operation(partial, (identity, whole))})


class _Writing:
    """The tasks that write blocks into the arrays of one finalize task."""

    def __init__(self, site: Site, task: Task, gathered: Sequence[Gathered]) -> None:
        self._site, self._task, self._gathered = site, task, gathered
        self._token = fingerprint(["place-blocks", task.key])
        self._room = f"place-blocks-{self._token}"
        self._made: dict[Key, Any] = {}
        #: by where a block comes from, the array and the part that it is written into
        self._whole: dict[Key, _Where] = {}
        self._listed: defaultdict[Key, dict[int, _Where]] = defaultdict(dict)
        #: what stands for blocks that others use as well, by their keys or places in lists
        self._new: dict[Any, Any] = {}
        self._are_shallow = False

    def nodes(self) -> dict[Key, Any]:
        for number, each in enumerate(self._gathered):
            for block, where in each.parts:
                if type(block) is TaskRef:
                    self._whole.setdefault(block.key, (number, where))
                elif (found := _element(block)) is not None:
                    self._listed[found[0]].setdefault(found[1], (number, where))
        sources = [self._site.node(key) for key in (*self._whole, *self._listed)]
        self._are_shallow = deepest(sources, _DEEPEST) <= _DEEPEST
        for key, (number, index) in self._whole.items():
            self._place(key, part_of(self._room, number, index))
        for key, places in self._listed.items():
            if key not in self._whole:
                self._place_all(key, places)
        self._made[self._room] = new_room(self._room, [each.empty for each in self._gathered])
        self._made[self._task.key] = self._finalize()
        return self._made

    def _place(self, key: Key, part: Task) -> None:
        node = self._site.node(key)
        if type(node) is not Task:
            return  # data that is there anyway
        if self._site.used_once(key) and self._may_nest(node):
            self._made[key] = placed(key, nameless(node), part, node._data_producer)
        else:
            new = marked(key, self._token)
            self._made[new] = placed(new, TaskRef(key), part)
            self._new[key] = TaskRef(new)

    def _place_all(self, key: Key, places: dict[int, _Where]) -> None:
        """Write those of a list of blocks that go into the result."""
        node, known = self._site.node(key), self._site.facts.value(key)
        if type(node) is not Task or type(known) is not list:
            return
        picked = sorted(places)
        parts = [part_of(self._room, *places[i]) for i in picked]
        alone = self._site.used_once(key) and picked == list(range(len(known)))
        if alone and self._may_nest(node):
            self._made[key] = all_placed(key, nameless(node), parts, node._data_producer)
            return
        new = marked(key, self._token)
        self._made[new] = all_placed(new, list_of([one_of(key, i) for i in picked]), parts)
        for place, i in enumerate(picked):
            self._new[key, i] = one_of(new, place)

    def _may_nest(self, node: Task) -> bool:
        is_shallow = self._are_shallow or check_depth(node, _DEEPEST)
        return is_shallow and self._site.context.may_move(node.func)

    def _finalize(self) -> Task:
        task, steps, whole = self._task, list[Step](), list[Any]()
        for number, each in enumerate(self._gathered):
            steps.append((("room", number), array_of(self._room, number)))
            indices = [index for _, index in each.parts]
            blocks = [self._now(block) for block, _ in each.parts]
            steps.append((("whole", number), written(TaskRef(("room", number)), indices, blocks)))
            whole.append(TaskRef(("whole", number)))
        if task.func is not finalize:
            arrays = List(*map(_as_block, whole))
            steps.append(("all", operation(task.func, (arrays, *task.args[1:]), task.kwargs)))
        return program_task(task.key, steps, task._data_producer)

    def _now(self, block: Any) -> Any:
        """What stands for a block now."""
        return self._new.get(block.key if type(block) is TaskRef else _element(block), block)


def _element(block: Any) -> tuple[Key, int] | None:
    """The list that an expression takes an element of, and which one."""
    if type(block) is not Task or block.func is not operator.getitem or type(block.args[0]) is not TaskRef:
        return None
    return (block.args[0].key, block.args[1]) if type(block.args[1]) is int else None
