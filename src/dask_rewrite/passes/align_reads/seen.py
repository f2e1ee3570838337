"""What is known of tasks that see where the blocks of a file end."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from dask.typing import Key

from dask_rewrite.passes.demand.boxes import Box


class Tile(NamedTuple):
    """A block of the file, or what is made of it element by element."""

    form: int  # how it is made: the same number for the same work on other blocks
    box: Box


class Partial(NamedTuple):
    """What is summed up of some blocks: of those boxes, and of those below some keys."""

    form: int
    kind: Any
    axes: tuple[int, ...]
    rest: Box  # the ranges on the other axes
    blocks: int
    boxes: tuple[Box, ...]
    parts: tuple[Key, ...]


#: What is known of a task that sees the borders; None of one that does not.
Seen: TypeAlias = Tile | Partial | None


def elsewhere(seen: Seen, box: Box) -> Seen:
    """The same of another block: of its own, or summed up."""
    if type(seen) is Tile:
        return Tile(seen.form, box)
    if type(seen) is Partial:
        rest = tuple([ends for axis, ends in enumerate(box) if axis not in seen.axes])
        return seen._replace(rest=rest, boxes=(box,) * len(seen.boxes))
    return seen
