"""Batches whose rows read neighbours from a file: that is read at once, and each row takes its part."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import repeat
from typing import Any

import numpy as np
from dask._task_spec import Task, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.knowledge.loading import Source
from dask_rewrite.graph.nodes import NO_KWARGS, make_task
from dask_rewrite.graph.program import operation
from dask_rewrite.graph.substitute import replaced
from dask_rewrite.passes.coalesce.weights import MOST_BYTES
from dask_rewrite.passes.coalesce.write import Batch
from dask_rewrite.passes.demand.boxes import inside, size, whole
from dask_rewrite.passes.merge_reads import is_in_order, merged
from dask_rewrite.passes.merge_reads.reads import Template, box_of, read_in


class MergedReads:
    """Lets batches read once.

    Parameters
    ----------
    value : callable
        What is known of what stands under a key.
    """

    def __init__(self, value: Callable[[Key], Any]) -> None:
        self._value = value
        self._templates: dict[int, Template | None] = {}
        self._bodies: dict[tuple[int, bool], Task] = {}

    def of(self, batch: Batch) -> Batch:
        """The batch over one read, if its rows read parts of one box and nothing overlaps."""
        body = batch.template.__self__
        if id(body) not in self._templates:
            self._templates[id(body)] = read_in(body)
        template = self._templates[id(body)]
        if template is None or template.place is None:
            return batch
        file, place = (int(name[1:]) for name in (template.file, template.place))
        ref = batch.columns[file][0]
        source = self._source(ref)
        if source is None or any(cell.key != ref.key for cell in batch.columns[file]):
            return batch
        boxes = [box for index in batch.columns[place] if (box := box_of(index, source.shape)) is not None]
        united = merged(boxes) if len(boxes) == len(batch.members) else []
        if len(united) != 1 or sum(map(size, boxes)) != size(united[0]):
            return batch
        if size(united[0]) * source.dtype.itemsize > MOST_BYTES:
            return batch
        (read,) = united
        parts = [inside(box, read) or tuple([slice(a, b) for a, b in whole(source.shape)]) for box in boxes]
        getter = template.getter
        index = tuple([slice(a, b) for a, b in read])
        call = operation(getter.func, (ref, index, *getter.args[2:]), getter.kwargs)
        columns: list[Any] = list(batch.columns)
        columns[file] = make_task(None, repeat, (call, len(boxes)), NO_KWARGS, call._dependencies)
        columns[place] = parts
        in_order = all(is_in_order(box, read) for box in boxes)
        return batch._replace(template=self._body(body, template, in_order).__call__, columns=columns)

    def _source(self, ref: Any) -> Source | None:
        found = self._value(ref.key) if type(ref) is TaskRef else None
        return found if type(found) is Source and found.in_order else None

    def _body(self, body: Task, template: Template, in_order: bool) -> Task:
        """What each row computes, of what was read and the index of its part."""
        if (id(body), in_order) not in self._bodies:
            # under the names of the file and of the index
            part = operation(operator.getitem, template.getter.args[:2])
            part = part if in_order else operation(np.array, (part,), {"order": "C"})
            self._bodies[id(body), in_order] = replaced(body, {id(template.getter): part})
        return self._bodies[id(body), in_order]
