"""What may go into one task, so that what is there already does not wait long for the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from statistics import median
from typing import Any

from dask._task_spec import Task
from dask.typing import Key

from dask_rewrite.analysis.estimates import estimate
from dask_rewrite.graph.names import is_finalize, layer_name
from dask_rewrite.graph.postorder import greedy_order
from dask_rewrite.passes.site import Site

#: Bytes of results that may be made between the first of the tasks that go into one and the last: so many,
#: or this part of all that is made.
HELD, PART = 2**22, 128
#: Blocks of a layer that are looked at.
_BLOCKS = 8
#: As many tasks as there are, so many times, are looked at to find out for what much has to be made.
_LOOKS = 1


class Waiting:
    """About when each task runs, in bytes that are made before it.

    What is needed for one output is made before what is needed for the next, and what can be made of that
    already comes first of all. So ``x - x.mean(axis=0)`` is made column by column, each of which is let go
    of before the next one is made: a task that takes means of several columns holds all of these. It only
    matters where blocks are held for something that has to wait for much else.

    Parameters
    ----------
    site : Site
        The graph, and what is known of it: one block of each layer is looked at.
    part : int, optional
        One part in so many of all that is made is much; without, `HELD` or one in `PART`.
    """

    def __init__(self, site: Site, part: int | None = None) -> None:
        self._site, self._nodes = site, site.graph.nodes
        self._sample = sample = {layer_name(key): key for key in self._nodes}
        # what gathers a result comes last, whatever its size, for which all blocks would have to be known
        sizes = {
            name: None if is_finalize(name) else estimate(site.facts, key) for name, key in sample.items()
        }
        self._nbytes = {name: 0 if size is None else size.nbytes for name, size in sizes.items()}
        self._total = sum(map(self._nbytes.__getitem__, map(layer_name, self._nodes)))
        self._room = max(1, self._total // part if part else max(HELD, self._total // PART))
        self._needed: dict[Any, bool] = {}
        self._looks = _LOOKS * len(self._nodes)

    @cached_property
    def matters(self) -> bool:
        """Whether any block is held for something that has to wait for much else."""
        return self._total > self._room and any(map(self._keeps_waiting, reversed(self._sample.values())))

    def needs_much(self, key: Key) -> bool:
        """Whether much has to be made for the tasks of a layer; taken for granted after many looks."""
        name = layer_name(key)
        if name not in self._needed:
            seen, stack, total = {key}, [key], 0 if self._looks > 0 else self._room + 1
            while stack and total <= self._room:
                here = stack.pop()
                self._looks -= 1
                layer = layer_name(here)
                # what needs a block for which much has to be made needs no less
                total += self._room + 1 if self._needed.get(layer) else self._nbytes.get(layer, 0)
                deps = [dep for dep in self._nodes[here]._dependencies if dep in self._nodes]
                stack += [dep for dep in deps if dep not in seen]
                seen.update(deps)
            self._needed[name] = total > self._room
        return self._needed[name]

    def far(self, keys: Sequence[Key]) -> bool:
        """Whether some tasks wait long for each other."""
        return len(self.near(range(len(keys)), keys)) > 1

    def is_last(self, key: Key, others: Iterable[Key]) -> bool:
        """Whether none of some tasks comes after this one."""
        return all(self._made.get(other, 0) <= self._made.get(key, 0) for other in others)

    def near(self, rows: Sequence[int], keys: Sequence[Key]) -> list[Sequence[int]]:
        """Some tasks, in groups between whose first and last not much is made."""
        if not self.matters:
            return [rows]
        made = [self._made.get(keys[row], 0) for row in rows]
        first = min(made, default=0)
        groups: defaultdict[int, list[int]] = defaultdict(list)
        for row, at in zip(rows, made):
            groups[(at - first) // self._room].append(row)
        return list(groups.values())

    def limits(self, blocks: Mapping[tuple[int, ...], Key]) -> list[int]:
        """How many neighbours may go together along each axis, of blocks by their places."""
        places = list(blocks)
        found = [len(places)] * len(places[0])
        for axis in range(len(found)) if self.matters else ():
            between = [
                abs(self._made[blocks[place]] - self._made[other])
                for place in places[:: len(places) // _BLOCKS | 1]
                for step in (-1, 1)
                if (other := blocks.get((*place[:axis], place[axis] + step, *place[axis + 1 :]))) is not None
            ]
            if between:
                found[axis] = self._room // max(1, int(median(between)))
        return found

    @cached_property
    def _made(self) -> dict[Key, int]:
        """Bytes that are made until a task is done."""
        graph = self._site.graph
        order = list(greedy_order(graph.outputs, graph.nodes, self._site.context.consumers(graph)))
        return dict(zip(order, accumulate(map(self._nbytes.__getitem__, map(layer_name, order)))))

    def _keeps_waiting(self, key: Key) -> bool:
        """A task waits for much, and holds a block for which less is needed."""
        held = [dep for dep in self._nodes[key]._dependencies if type(self._site.node(dep)) is Task]
        shared = list(filter(self._site.is_shared, held)) if len(held) > 1 else []
        return bool(shared) and self.needs_much(key) and not all(map(self.needs_much, shared))
