"""Along which axes all that is made of a file's blocks is summed up, so that nobody sees their borders."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dask._task_spec import DataNode, GraphNode, List, Task, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.knowledge import Fact
from dask_rewrite.graph.graph import producers_first
from dask_rewrite.graph.nodes import literal
from dask_rewrite.passes.align_reads.constants import are_broadcast, constant_of
from dask_rewrite.passes.align_reads.kinds import ALL, CHUNKS, JOIN, SOME, Visible, along, keeps, kind_of
from dask_rewrite.passes.align_reads.reads import File
from dask_rewrite.passes.align_reads.seen import Partial, Seen, Tile, elsewhere
from dask_rewrite.passes.align_reads.texts import stands_once
from dask_rewrite.passes.align_reads.worksite import Worksite
from dask_rewrite.passes.demand.boxes import Box, lengths, whole
from dask_rewrite.passes.demand.calls import Call, call_of
from dask_rewrite.passes.demand.elementwise import TABLE
from dask_rewrite.passes.demand.forms import form_of, unknown
from dask_rewrite.passes.demand.plans import UNUSUAL, parts_of
from dask_rewrite.passes.steps import Opaque, Step, Values, references_of, step_of, steps_of

#: Literals of these types are the same if they read the same.
_PLAIN = frozenset((int, float, bool, complex, str, type(None), slice, *np.sctypeDict.values()))
#: Functions with rules that do more than broadcast.
_OTHERS = (np.broadcast_to, np.digitize)


class Borders:
    """A walk from the reads of a file to where nobody sees any more how it was cut.

    Parameters
    ----------
    file : File
        Its reads form a grid.
    site : Worksite
        The graph.
    counts : sequence of int
        How many blocks there are on each axis.
    reassociate : bool
        Whether floats may be summed in other groups.
    """

    def __init__(self, file: File, site: Worksite, counts: Sequence[int], reassociate: bool) -> None:
        self.seen: dict[Key, Seen] = {}
        self.free = frozenset(range(len(counts)))  # the axes whose borders nobody sees
        self._file = file
        self._site = site
        self._counts = counts
        self._reassociate = reassociate
        self._values = Values(site.facts)
        self._forms: dict[Any, int] = {}
        self._alike: dict[Any, tuple[Seen, Key] | None] = {}
        self._ends: dict[Any, tuple[bool, Key]] = {}  # of what partial results are put together by
        self._broadcast: Counter[Any] = Counter()  # constants, by how often they are broadcast with a block
        self._ending: list[tuple[Step, bool]] = []  # the steps of a task that may be the last to see borders

    def walk(self) -> None:
        """Look at each task after those that it uses, as far as these are on the way.

        Raises
        ------
        Visible
            If somebody sees the borders on all axes.
        """
        nodes, site, seen = self._site.graph.nodes, self._site, self.seen
        ready = deque([*self._file.reads, *self._file.inside])
        waiting: dict[Key, int] = {}  # for how many others
        late: set[Key] = set()
        while ready or waiting:
            if not ready:  # they wait for what does not come from this file, or for each other
                late.update(waiting)
                ready.extend(producers_first(list(waiting), nodes))
                waiting.clear()
            key = ready.popleft()
            try:
                here = seen[key] = self._seen(key, nodes[key])
            except Visible:
                site.seeing.add(key)
                raise
            if here is not None and (site.wanted(key) or not self.free):
                raise Visible
            for user in site.consumers(key):
                if user in seen and here is not None:
                    raise Visible  # this was taken for something that does not come from the file
                if user in seen or user in late:
                    continue
                left = waiting.pop(user, None)
                if left is None and here is None:
                    continue
                if left is None and not site.may_look(user):
                    raise Visible
                if left is None:
                    deps = nodes[user]._dependencies
                    left = sum([dep not in seen and type(nodes.get(dep)) is not DataNode for dep in deps]) + 1
                if left > 1:
                    waiting[user] = left - 1
                else:
                    ready.append(user)

    def _seen(self, key: Key, node: GraphNode) -> Seen:
        """What is known of a task, found out once for all that do the same to blocks of one shape."""
        if type(node) is not Task:
            raise Visible
        index = self._file.indexes.get(key)
        form, keys = form_of(node, unknown, index)
        seen = [self.seen.get(used) for used in keys]
        if seen and all(type(each) is Partial for each in seen):
            return self._parts_together(key, node, (form, *[each[:3] for each in seen if each]), keys)
        states = [(used,) if each is None else each.form for used, each in zip(keys, seen)]
        boxes = {each.box for each in seen if type(each) is Tile}
        if self._file.key in keys:
            boxes.add(self._box(key))
        if len(boxes) != 1 or any(type(each) is Partial for each in seen):
            return self._task(key, node)[0]
        alike = form, tuple(states), lengths(box := boxes.pop())
        if alike not in self._alike:
            found, steps = self._task(key, node)
            told = self._file.key not in keys or stands_once(index, steps)
            self._alike[alike] = (found, key) if told else None
            return found
        known = self._alike[alike]
        if known is None:
            return self._task(key, node)[0]
        self._site.facts.tell(key, self._site.facts.value(known[1]))
        return elsewhere(known[0], box)

    def _parts_together(self, key: Key, node: Task, form: Any, keys: tuple[Key, ...]) -> Seen:
        """The same where all that is used are partial results."""
        parts: list[Any] = [self.seen[used] for used in keys]
        first: Partial = parts[0]
        alike = form, lengths(first.rest)
        known = self._ends.get(alike)
        if known is None:
            self._ending.clear()
            found, steps = self._task(key, node)
            once = type(found) is Partial and len(found.parts) == len(keys) == len({*found.parts, *keys})
            if once and len(self._ending) == 1 and self._ending[0][0] is steps[-1]:
                self._ends[alike] = self._ending[0][1], key
            return found
        if any(part[:4] != first[:4] for part in parts):
            raise Visible
        self._site.facts.tell(key, self._site.facts.value(known[1]))
        blocks = sum([part.blocks for part in parts])
        return self._ended(first._replace(blocks=blocks, boxes=(), parts=keys), known[0])

    def _box(self, key: Key) -> Box:
        return self._file.reads.get(key) or self._file.inside[key]

    def _task(self, key: Key, node: GraphNode) -> tuple[Seen, list[Step]]:
        """What is known of a task, and its steps."""
        tags: dict[Any, Seen] = {}
        forms: dict[Any, int] = {}
        last: Seen = None
        try:
            steps = steps_of(node, self._site.facts)
            for step in steps:
                forms[step] = self._form(constant_of(step, self._site.facts) or step.task, forms)
                last = tags[step] = self._step(step, forms[step], tags, key)
            if key in self._file.inside and not are_broadcast(steps, self._broadcast, self._site.facts):
                raise Visible
        except (Opaque, *UNUSUAL) as error:
            raise Visible from error
        return last, steps

    def _form(self, task: Task, forms: Mapping[Any, int]) -> int:
        """A number for what a call does, with blocks of the file by their forms."""

        def named(arg: Any) -> Any:
            if type(arg) is TaskRef:
                if arg.key in forms:
                    return "step", forms[arg.key]
                seen = self.seen.get(arg.key)
                return ("key", arg.key) if seen is None else ("block", seen.form)
            if isinstance(arg, (List, tuple)):
                return type(arg), *map(named, arg.args if type(arg) is List else arg)
            value = literal(arg)
            return (type(value), repr(value)) if type(value) in _PLAIN else id(value)

        if self._file.key in task._dependencies:
            parts: Any = "read"
        else:
            func, args, kwargs = task.func, task.args, task.kwargs
            parts = id(func), *map(named, args), *[(name, named(arg)) for name, arg in kwargs.items()]
        return self._forms.setdefault(parts, len(self._forms))

    def _step(self, step: Step, form: int, tags: Mapping[Any, Seen], key: Key) -> Seen:
        task = step.task
        refs = references_of(task)
        if any(ref.key == self._file.key for ref in refs):
            return Tile(form, self._box(key))
        found = []
        for ref in refs:
            one = tags[ref.key] if step_of(ref) is not None else self.seen.get(ref.key)
            if one is not None:
                found.append((ref, one))
        if not found:
            return None
        call = call_of(step, self._values)
        if call is None:
            raise Visible
        if type(found[0][1]) is Partial:
            return self._together(step, call, found)
        return self._of_tile(step, form, call, found, key in self._file.inside)

    def _of_tile(
        self, step: Step, form: int, call: Call, found: Sequence[tuple[TaskRef, Any]], reads: bool
    ) -> Seen:
        """Work element by element, or a reduction."""
        tile = Tile(form, found[0][1].box)
        if any(type(other) is not Tile or other.box != tile.box for _, other in found):
            raise Visible
        shape = lengths(tile.box)
        if call.func in CHUNKS:
            return self._reduced(step, call, tile)
        rule = TABLE.get(call.func)
        made = None if rule is None or call.func in _OTHERS else rule(call, whole(call.shape))
        if made is None or call.shape != shape:
            raise Visible
        tiles = [ref for ref, _ in found]
        taken = 0
        for part in parts_of(made.args):
            there = call.block(part.of)
            if any(part.of is ref for ref in tiles):
                taken += 1
                if there != shape:
                    raise Visible
            elif reads and constant_of(part.of, self._site.facts) is not None:
                self._broadcast[part.of.key] += 1
            else:
                first = len(shape) - len(there)
                self.free -= {first + axis for axis, n in enumerate(there) if n > 1}
        if taken != len(found):
            raise Visible
        return tile

    def _reduced(self, step: Step, call: Call, tile: Tile) -> Seen:
        axes, shape = along(call, len(self._counts)), lengths(tile.box)
        if call.shape != tuple([1 if axis in axes else n for axis, n in enumerate(shape)]):
            raise Visible
        facts = list(step.value.values()) if type(step.value) is dict else [step.value]
        if any(type(fact) is not Fact for fact in facts):
            raise Visible
        dtypes = {fact.dtype.kind for fact in facts}
        if not self._reassociate and not dtypes.issubset("biu"):
            raise Visible
        kind = kind_of(CHUNKS[call.func], call, dtypes)
        self.free &= frozenset(axes)
        rest = tuple([ends for axis, ends in enumerate(tile.box) if axis not in axes])
        return Partial(tile.form, kind, axes, rest, 1, (tile.box,), ())

    def _together(self, step: Step, call: Call, found: Sequence[tuple[TaskRef, Any]]) -> Seen:
        """Partial results put together, or summed up."""
        first: Partial = found[0][1]
        if any(type(each) is not Partial or each[:4] != first[:4] for _, each in found):
            raise Visible
        keys = tuple([ref.key for ref, _ in found if step_of(ref) is None])
        inner = [each for ref, each in found if step_of(ref) is not None]
        made = first._replace(
            blocks=sum([each.blocks for _, each in found]),
            boxes=tuple([box for each in inner for box in each.boxes]),
            parts=(*keys, *[part for each in inner for part in each.parts]),
        )
        if not keeps(step.value, [self._values.get(ref.key) for ref, _ in found]):
            raise Visible
        if call.func is JOIN:
            return made
        kind = SOME.get(call.func) or ALL[call.func]
        if kind_of(kind, call) != first.kind or along(call, len(self._counts)) != first.axes:
            raise Visible
        self._ending.append((step, call.func in ALL))
        return self._ended(made, call.func in ALL)

    def _ended(self, made: Partial, last: bool) -> Seen:
        """None if this is summed up of all blocks."""
        if made.blocks == math.prod([self._counts[axis] for axis in made.axes]) and self._is_all(made):
            return None
        if last:
            raise Visible
        return made

    def _is_all(self, made: Partial) -> bool:
        """Each block is among them, once."""
        boxes, stack = set(made.boxes), list(made.parts)
        while stack:
            key = stack.pop()
            part = self.seen[key]
            if type(part) is not Partial or len(self._site.consumers(key)) != 1:
                raise Visible
            boxes.update(part.boxes)
            stack += part.parts
        return len(boxes) == made.blocks
