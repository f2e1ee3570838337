"""Batches whose rows read neighbours from a file: that is read at once, and each row takes its part."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any

from dask._task_spec import Task, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.knowledge.loading import Source
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.nodes import NO_KWARGS, literal, make_task
from dask_rewrite.graph.substitute import replaced
from dask_rewrite.passes.coalesce.weights import MOST_BYTES
from dask_rewrite.passes.coalesce.write import Batch
from dask_rewrite.passes.demand.boxes import index_of, inside, lengths, size, whole
from dask_rewrite.passes.demand.windows import box_of
from dask_rewrite.passes.merge_reads import is_in_order, merged, part_at
from dask_rewrite.passes.merge_reads.reads import Template, read_in, read_of


class MergedReads:
    """Lets batches read once.

    Parameters
    ----------
    value : callable
        What is known of what stands under a key.
    """

    def __init__(self, value: Callable[[Key], Any]) -> None:
        self._value = value
        self._templates = ByIdentity[Template | None]()
        self._bodies = (
            ByIdentity[Task](),
            ByIdentity[Task](),
        )  # of parts that are copied, and those that are not

    def of(self, batch: Batch) -> Batch:
        """The batch over one read, if its rows read parts of one box and nothing overlaps."""
        body = batch.template.__self__
        template = self._templates.of(body, read_in)
        if template is None or template.place is None:
            return batch
        file, place = (int(name[1:]) for name in (template.file, template.place))
        ref = batch.columns[file][0]
        source = self._source(ref)
        if source is None or any(cell.key != ref.key for cell in batch.columns[file]):
            return batch
        indices = map(literal, batch.columns[place])
        boxes = [box for index in indices if (box := box_of(index, source.shape)) is not None]
        united = merged(boxes) if len(boxes) == len(batch.members) else []
        if len(united) != 1 or sum(map(size, boxes)) != size(united[0]):
            return batch
        if size(united[0]) * source.dtype.itemsize > MOST_BYTES:
            return batch
        (read,) = united
        parts = [inside(box, read) or index_of(whole(lengths(read))) for box in boxes]
        call = read_of(template.getter, ref, read)
        columns: list[Any] = list(batch.columns)
        columns[file] = make_task(None, repeat, (call, len(boxes)), NO_KWARGS, call._dependencies)
        columns[place] = parts
        in_order = all(is_in_order(box, read) for box in boxes)
        text = self._bodies[in_order].of(body, partial(_over_parts, template, in_order))
        return batch._replace(template=text.__call__, columns=columns)

    def _source(self, ref: Any) -> Source | None:
        found = self._value(ref.key) if type(ref) is TaskRef else None
        return found if type(found) is Source and found.in_order else None


def _over_parts(template: Template, in_order: bool, body: Task) -> Task:
    """What each row computes: what was read has the name of the file, and its part that of the index."""
    read, index = template.getter.args[:2]
    text: Task = replaced(body, {id(template.getter): part_at(read, index, in_order)})
    return text
