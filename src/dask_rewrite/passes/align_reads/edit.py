"""New tasks for the reads of one file."""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import chain, pairwise, product
from math import prod
from typing import Any, TypeAlias

import numpy as np
from dask._task_spec import Task, TaskRef
from dask.typing import Key
from dask.utils import key_split
from toolz import pipe

from dask_rewrite.analysis.facts import Facts, nowhere
from dask_rewrite.analysis.knowledge.loading import source_of
from dask_rewrite.analysis.knowledge.shards import weight
from dask_rewrite.graph.graph import Nodes
from dask_rewrite.graph.names import fingerprint
from dask_rewrite.graph.nodes import NO_KWARGS, make_task, nameless, under
from dask_rewrite.graph.program import operation, program_task
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.align_reads.constants import constant_of
from dask_rewrite.passes.align_reads.reads import File
from dask_rewrite.passes.align_reads.storage import cuts
from dask_rewrite.passes.align_reads.texts import FILE, Text, called, common, reading, stands_once, text_of
from dask_rewrite.passes.align_reads.worksite import Worksite
from dask_rewrite.passes.demand.boxes import Box, hull, index_of, size
from dask_rewrite.passes.demand.forms import form_of, unknown
from dask_rewrite.passes.steps import Step, assembled, steps_of

#: Ranges side by side on one axis.
Ranges: TypeAlias = list[tuple[int, int]]


class Edit:
    """New tasks for the reads of one file.

    Parameters
    ----------
    file : File
        All reads of it are known.
    site : Worksite
        The graph.
    name : str
        Of the pass.
    moved : bool
        Blocks are other boxes than they were: nothing in a task is made for the shape that its block had.
    """

    def __init__(self, file: File, site: Worksite, name: str, moved: bool = False) -> None:
        self.file = file
        self._moved = moved
        self.site = site
        self.nodes: Nodes = {}
        self.units: dict[Box, Key] = {}
        self._cuts: list[list[int]] = []
        self._read = reading(file)
        self._texts: dict[Any, Text] = {}
        self._around: dict[Any, Task | None] = {}
        self._facts = Facts(nowhere)
        self._times: Counter[Box] = Counter()  # by how many blocks a unit is used, where these share it
        self._tight: dict[Box, Box] = {}  # what is read of units that are shared, of shards
        self._source = source_of(file.source)
        layer = key_split(next(iter({**file.reads, **file.inside})))
        self._name = f"{layer}-aligned-{fingerprint([name, site.graph.origin.token, file.key])}"

    def read(self, key: Key, box: Box) -> Task:
        """A read of a box."""
        return under(key, self.file.read(TaskRef(self.file.key), index_of(box)), True)

    def cut(self, boxes: Sequence[Box], apart: Collection[int] = ()) -> None:
        """Settle where units begin and end: along the file's chunks, but for the axes ``apart``."""
        self._cuts = cuts(boxes, self.file.chunks, self.file.source.shape, apart)
        self._pieces: dict[tuple[int, tuple[int, ...]], tuple[Ranges, tuple[int, ...]]] = {}

    def hold(self, boxes: Sequence[Box]) -> tuple[int, int]:
        """How many chunks are decoded for the units, and the bytes of units that wait for a second block.

        Blocks are taken to be made one after the other, in the order in which they come.
        """
        touching = [self._units(box) for box in boxes]
        self._times = Counter(chain.from_iterable(touching))
        decoded = self.file.decoded(chain(self._times, self._tighten(boxes, touching)))
        left = {unit: times for unit, times in self._times.items() if times > 1}
        itemsize = self.file.source.dtype.itemsize
        bytes_of = {unit: size(self._tight.get(unit, unit)) * itemsize for unit in left}
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

    def _tighten(self, boxes: Sequence[Box], touching: Sequence[Sequence[Box]]) -> list[Box]:
        """Units of shards become as small as can be, and what blocks better read by themselves is theirs.

        Such units are returned, once for each block but the first. Parts of shards come chunk by chunk: what
        lies between far windows is for nobody, and to ask for it costs more than to look a shard up again.
        """
        self._tight.clear()
        if self._source.inner is None:
            return []
        alone: Counter[Box] = Counter()  # what blocks take of a unit that read it by themselves
        for box, units in zip(boxes, touching):
            for unit in units:
                if self._times[unit] > 1:
                    part = common(unit, box)
                    self._tight[unit] = hull(self._tight.get(unit, part), part)
                    # What one task reads may become one read later on, which looks a shard up once as well.
                    alone[unit] += weight(self._source, part, True)
        again = []
        for unit, taken in alone.items():
            if weight(self._source, self._tight[unit], True) > taken:
                again += [unit] * (self._times[unit] - 1)
                self._times[unit] = 1
                del self._tight[unit]
        return again

    def asks_more(self, boxes: Sequence[Box]) -> bool:
        """Whether a store of shards is asked for more than where each box is one read: some cut shards."""
        if self._source.inner is None:
            return False
        after = list(self._tight.values())
        for box in boxes:
            units = self._units(box)
            own = [common(unit, box) for unit in units if self._times[unit] == 1]
            after += [box] if len(own) == len(units) else own
        asked, before = (sum([weight(self._source, box) for box in each]) for each in (after, boxes))
        return asked > before

    def reads(self, boxes: Sequence[Box]) -> int:
        """How many reads there are: of units that blocks share, and one at least of the rest of a block."""
        rest = [any(self._times[unit] == 1 for unit in self._units(box)) for box in boxes]
        return sum([times > 1 for times in self._times.values()]) + sum(rest)

    def _piece(self, axis: int, ends: tuple[int, ...]) -> tuple[Ranges, tuple[int, ...]]:
        """The ranges of units that a range touches, and what they are seen from where it begins."""
        found = self._pieces.get((axis, ends))
        if found is None:
            column, (low, high) = self._cuts[axis], ends
            places = column[bisect_right(column, low) - 1 : bisect_left(column, high) + 1]
            seen = (high - low, low % self.file.chunks[axis], *[place - low for place in places])
            found = self._pieces[axis, ends] = list(pairwise(places)), seen
        return found

    def _units(self, box: Box) -> list[Box]:
        """The units that a box touches."""
        return list(product(*[self._piece(axis, ends)[0] for axis, ends in enumerate(box)]))

    def count(self, box: Box) -> int:
        """From how many units a box is put together."""
        return prod([len(self._piece(axis, ends)[0]) for axis, ends in enumerate(box)])

    def _unit(self, unit: Box) -> Key:
        key = self.units.get(unit)
        if key is None:
            key = self.units[unit] = (self._name, *[a for a, _ in unit])
            self.nodes[key] = self.read(key, self._tight.get(unit, unit))
        return key

    def _text(self, key: Key, box: Box, units: Sequence[Box]) -> Text:
        """What gives a task its box, from units where these are shared: the same for boxes that lie alike."""
        own = tuple([self._times[unit] == 1 for unit in units])
        if all(own):
            return self._read
        pieces = [self._piece(axis, ends) for axis, ends in enumerate(box)]
        needed = [self._tight.get(unit, unit) for unit in units]
        tight = needed if self._tight else ()  # else the pieces say where units lie
        seen = [(a - c, b - c) for unit in tight for (a, b), (c, _) in zip(unit, box)]
        copied = self._is_seen(key)
        alike = copied, own, tuple(seen), *[places for _, places in pieces]
        text = self._texts.get(alike)
        if text is None:
            counts = [len(ranges) for ranges, _ in pieces]
            text = text_of(self.file, box, needed, counts, own)
            if copied and text.made.func is operator.getitem:
                text = text._replace(made=operation(np.array, (text.made,), {"order": "C"}))
            self._texts[alike] = text
        return text

    def _is_seen(self, key: Key) -> bool:
        """Whether somebody may write into the box that a task reads, or ask how it lies in memory."""
        effect = self.site.effect(key) if key in self.file.inside else "view"
        return effect == "unknown" or (effect == "view" and not self.site.read_only(key))

    def block(self, key: Key, box: Box) -> Task:
        """A block that was read, or made of reads, from units."""
        units = self._units(box)
        text = self._text(key, box, units)
        if text is self._read:
            return self.read(key, box)
        values = self._values(text, box, units)
        if text.made.func is pipe:
            return called(key, text.made, values, bool(text.runs))
        return under(key, with_values(text.made, values))

    def around(self, key: Key, box: Box) -> Task:
        """A task that reads among other things, from units, or with a read of another box.

        Raises
        ------
        Opaque
            If it cannot be read.
        """
        units = [] if self._moved else self._units(box)
        text = self._read if self._moved else self._text(key, box, units)
        node: Any = self.site.graph.nodes[key]
        made, keys = self._with_text(node, text, self.file.indexes[key])
        if made is None:
            made, keys = self._with_text(node, text, None)
        assert made is not None
        values = self._values(text, box, units)
        values.update(zip(_names(keys, self.file.key), map(TaskRef, keys)))
        return called(key, made, values, bool(text.runs))

    def _with_text(self, node: Task, text: Text, index: Any) -> tuple[Task | None, tuple[Key, ...]]:
        """What reads by a text, over names, and the keys that these stand for; once for each form.

        None in its place if the index of the read stands elsewhere as well.
        """
        form, keys = form_of(node, unknown, index)
        alike = form, keys.index(self.file.key), id(text), index is None
        if alike not in self._around:
            names = {key: TaskRef(name) for key, name in zip(keys, _names(keys, self.file.key))}
            found = steps_of(with_values(node, names), self._facts)
            once = index is None or stands_once(index, found)
            self._around[alike] = self._assembled(found, text) if once else None
        return self._around[alike], keys

    def _assembled(self, found: Sequence[Step], text: Text) -> Task:
        steps = []
        for step in found:
            task = step.task
            first = task.args[0] if task.args else None
            if type(first) is TaskRef and first.key == FILE:
                task = text.made
            elif self._moved:
                task = constant_of(step, self._facts) or task
            steps.append((step, task))
        made = assembled("", steps, False)
        if made.func is pipe:
            return made
        program = program_task("", [("", nameless(made))], False)
        return make_task("", program.args[1], program.args[:1], NO_KWARGS, program._dependencies)

    def _values(self, text: Text, box: Box, units: Sequence[Box]) -> dict[str, Any]:
        """What stands for the names of a text."""
        values: dict[str, Any] = {name: TaskRef(self._unit(units[i])) for name, i in text.units}
        if text.runs:
            values[FILE] = TaskRef(self.file.key)
        for name, run in text.runs:
            there = box if run is None else tuple([(a + low, b + low) for (a, b), (low, _) in zip(run, box)])
            values[name] = index_of(there)
        return values

    def put(self) -> None:
        """Put into the graph what was made."""
        given = self.site.graph.annotations.get(next(iter({**self.file.reads, **self.file.inside})))
        self.site.put(self.nodes, {} if given is None else dict.fromkeys(self.units.values(), given))


def _names(keys: Sequence[Key], file: Key) -> list[str]:
    return [FILE if key == file else f"block {i}" for i, key in enumerate(keys)]
