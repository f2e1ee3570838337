"""Moves that do the same to blocks that are made alike: what comes of them is found out once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dask._task_spec import Task
from dask.typing import Key

from dask_rewrite.passes.movement.mosaic import Mosaic
from dask_rewrite.passes.movement.moves import Block, operation_of
from dask_rewrite.passes.movement.pieces import Fill, Piece
from dask_rewrite.passes.movement.read import Reader

#: Mosaics of more pieces are read one by one: few are alike, and to compare them costs as much.
_MOST = 32


class Pattern(NamedTuple):
    """A block with numbers for its sources; equal ones are one object."""

    shape: tuple[int, ...]
    dtype: Any
    pieces: tuple[Piece, ...]

    def of(self, sources: tuple[Key, ...]) -> Block:
        """The block of this pattern that is made of these sources."""
        mosaic = Mosaic(self.shape, None)
        mosaic.pattern = (self, sources)
        return mosaic, self.dtype

    def pieces_of(self, sources: tuple[Key, ...]) -> tuple[Piece, ...]:
        """The pieces of such a block; most are never asked for."""
        return tuple(
            [
                Piece(at, shape, source if type(source) is Fill else sources[source], axes)
                for at, shape, source, axes in self.pieces
            ]
        )


class Operation(NamedTuple):
    """What a task does, in a form that can be looked up, and the blocks that its result may be made of."""

    likeness: tuple[Any, ...]
    names: list[Key]
    refs: list[Key]
    same: tuple[Any, ...]


class Likeness:
    """Remembers what comes of moves, by the patterns of their blocks and what else decides on it.

    Parameters
    ----------
    forms, reader, pinned, kept, users
        The forms found so far and what stands for other blocks, which moves are used by others, which
        stages stay, and how many tasks use a block: see ``Forms``.
    """

    def __init__(
        self,
        forms: Mapping[Key, Block],
        reader: Reader,
        pinned: set[Key],
        kept: set[Key],
        users: Mapping[Key, int],
    ) -> None:
        self._forms = forms
        self._leaf = reader.leaf
        self._pinned = pinned
        self._kept = kept
        self._users = users
        self._patterns: dict[Any, Pattern] = {}
        self._results: dict[Any, tuple[Pattern, list[int], list[int], bool]] = {}
        self._blocks: dict[tuple[int, tuple[Key, ...]], Block] = {}  # by pattern and sources
        self._same: dict[Any, Block] = {}  # by the blocks themselves, where nothing else decides on it

    def of(self, task: Task) -> tuple[Block | None, Operation | None]:
        """What comes of a task, if that is known; else what it does to which blocks, if that is usual."""
        usual = operation_of(task)
        if usual is None:
            return None, None
        same = (usual[0], *map(id, map(self._leaf, usual[1])))
        found = self._same.get(same)
        operation = None if found is not None else self._operation(*usual, same)
        return (found, None) if operation is None else (self._result(operation), operation)

    def _operation(self, what: Any, refs: list[Key], same: tuple[Any, ...]) -> Operation | None:
        forms, kept = self._forms, self._kept
        likeness: list[Any] = [what]
        names: list[Key] = []
        for key in refs:
            block = forms.get(key)
            if block is None:
                block = self._leaf(key)
                likeness.append(-1)
            else:  # the task may use it as it stands
                names.append(key)
                likeness.append(4 * self._users[key] + 2 * (key in self._pinned) + (key in kept))
            found = self._pattern(block)
            if found is None or (kept and not kept.isdisjoint(found[1])):
                return None  # what is below a stage that stays is not looked at here
            likeness.append(id(found[0]))
            names.extend(found[1])
        distinct = dict.fromkeys(names)
        if len(distinct) < len(names):
            place = {name: i for i, name in enumerate(distinct)}
            likeness.append(tuple([place[name] for name in names]))
        return Operation(tuple(likeness), list(distinct), refs, same)

    def _result(self, operation: Operation) -> Block | None:
        """What comes of an operation that was seen before on other blocks."""
        found = self._results.get(operation.likeness)
        if found is None:
            return None
        pattern, sources, stages, alone = found
        names = operation.names
        self._kept.update([names[i] for i in stages])
        made_of = tuple([names[i] for i in sources])
        block = self._blocks.get((id(pattern), made_of))
        if block is None:
            block = self._blocks[id(pattern), made_of] = pattern.of(made_of)
        if alone:
            self._same[operation.same] = block
        return block

    def remember(self, operation: Operation, block: Block, alone: bool) -> None:
        """Remember what came of an operation, and which stages it keeps; on its blocks ``alone`` or not."""
        found = self._pattern(block)
        names = {name: i for i, name in enumerate(operation.names)}
        if found is not None and names.keys() >= set(found[1]):
            self._blocks.setdefault((id(found[0]), found[1]), block)
            stages = [names[key] for key in operation.refs if key in self._kept]
            alone = alone and not stages
            self._results[operation.likeness] = (found[0], [names[name] for name in found[1]], stages, alone)
            if alone:
                self._same[operation.same] = block

    def _pattern(self, block: Block | None) -> tuple[Pattern, tuple[Key, ...]] | None:
        if block is None:
            return None
        mosaic, dtype = block
        known: tuple[Pattern, tuple[Key, ...]] | None = mosaic.pattern
        if known is None and len(mosaic.pieces) <= _MOST:
            numbers: dict[Any, int] = {}
            cells = []
            for at, shape, source, axes in mosaic.pieces:
                number = source if type(source) is Fill else numbers.setdefault(source, len(numbers))
                cells.append(Piece(at, shape, number, axes))
            pieces = tuple(cells)
            # equal dtypes need not be the same: their metadata is not compared
            pattern = self._patterns.setdefault(
                (mosaic.shape, id(dtype), pieces), Pattern(mosaic.shape, dtype, pieces)
            )
            known = mosaic.pattern = (pattern, tuple(numbers))
        return known
