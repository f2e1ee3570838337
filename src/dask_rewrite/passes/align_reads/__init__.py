"""Files are read along their own chunks, and each chunk is decoded once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import ClassVar

import numpy as np
from dask._task_spec import DataNode
from dask.typing import Key

from dask_rewrite.analysis.knowledge.loading import source_of
from dask_rewrite.analysis.knowledge.shards import asks_more
from dask_rewrite.analysis.knowledge.stored import stored_chunks
from dask_rewrite.analysis.knowledge.xarray_files import is_closed
from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.align_reads.borders import move_borders
from dask_rewrite.passes.align_reads.cost import loses_time
from dask_rewrite.passes.align_reads.edit import Edit
from dask_rewrite.passes.align_reads.reads import File, follow
from dask_rewrite.passes.align_reads.storage import distinct
from dask_rewrite.passes.align_reads.worksite import Worksite
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.demand.boxes import Box, size
from dask_rewrite.passes.steps import Opaque

#: Files with more reads of chunks than this are left as they are: to look at each would take long.
_MANY = 200_000
#: Percent of chunks decoded too often from which memory is given for blocks that are put together.
_MUCH = 25
#: One of so many parts of `rewrite.memory-limit` may be held for a second block.
_OF_LIMIT = 8
_COPIES = "to put large blocks together takes memory, and saves few chunks"
_READS = "more reads and copies would take longer than to decode chunks again"
_CLOSED = "that xarray has closed are not opened again; see file_cache_maxsize of xarray.set_options"
_TOO_MANY = "the blocks cut the stored chunks into far more reads"


@dataclass(frozen=True, slots=True)
class AlignReads:
    """``concatenate([getter(z, a), getter(z, b)])`` → ``getter(z, a and b)``, or the other way round.

    Zarr and HDF5 decode whole chunks (shards), whatever part of them is read. Tasks that only put reads
    together (a rechunk) become reads themselves where that decodes no chunk more often. Borders that cut
    through stored chunks go between them, along axes along which all blocks are summed up (``reassociate``);
    elsewhere each chunk, or run of chunks that lies in one block, is read by a task of its own and the
    blocks are put together from these. Legal for files whose slices are known to be NumPy arrays. There are
    never fewer reads than threads, unless there were fewer before.

    Parameters
    ----------
    worth : int
        Percent of chunks that have to be decoded too often for blocks to be put together from aligned
        reads, which copies them; 25 at least where one copy for each thread is more than ``max_held``.
    max_units : int
        Aligned reads for each read before, at most.
    max_held : int
        Bytes of chunks that lie in two blocks and may be held for the second one, or by which blocks may
        grow, all threads together; a tenth of a block for each thread always may.
    """

    name: ClassVar[str] = "align-reads"
    worth: int = 10
    max_units: int = 4
    max_held: int = 16_777_216
    reassociate: bool = True

    def run(self, graph: Graph, context: Context) -> Graph:
        site = Worksite(graph, context)
        facts = site.facts  # which look at each file once
        files = [
            File(key, node.value, chunks)
            for key, node in graph.nodes.items()
            if type(node) is DataNode
            and type(node.value) is not np.ndarray
            and (chunks := stored_chunks(facts.value(key))) is not None
        ]
        for file in files:
            self._align(file, site)
        if site.changed or not files:  # those that are open are what the others are most likely
            self._tell_of_closed(site)
        return site.result()

    def _tell_of_closed(self, site: Worksite) -> None:
        """Say how many files are left as they are because they would have to be opened again."""
        nodes = site.graph.nodes
        closed = [key for key, node in nodes.items() if type(node) is DataNode and is_closed(node.value)]
        read_often = [key for key in closed if len(site.consumers(key)) > 1]
        if read_often:
            reason = f"{len(read_often)} files {_CLOSED}"
            site.context.remarks.missed(self.name, read_often[0], reason, len(read_often))

    def _align(self, file: File, site: Worksite, moves: bool = True) -> None:
        context, remarks, nodes = site.context, site.context.remarks, site.graph.nodes
        readers = site.consumers(file.key)
        if site.wanted(file.key) or not all(file.learn(key, nodes[key]) for key in readers):
            remarks.missed(self.name, file.key, "not all of its users read it by plain slices with one lock")
            return
        boxes = [*file.reads.values(), *file.inside.values()]
        before = file.decoded(boxes)
        if before > _MANY or not all(site.same_annotations(key, readers[0]) for key in readers):
            return
        least = distinct(boxes, file.chunks)
        if moves and self._is_much(before, least) and not site.graph.origin.shared:
            room = self._room(boxes, file, context) // context.machine.threads
            there = move_borders(file, site, self.name, self.reassociate, room)
            if there is not None:
                remarks.applied(self.name, file.key, f"borders of {len(readers)} reads go between chunks")
                if file.reads or self._is_much(file.decoded(there), least):
                    self._align(File(file.key, file.source, file.chunks), site, False)
                return
        inside = file.decoded(file.inside.values())
        # Of a read of one chunk, what only takes a part decodes no less.
        alone = before == len(boxes) and not site.has_joins
        asked = (None if alone else follow(file, site, before - inside)) or dict(file.reads)
        direct = inside + file.decoded(asked.values())
        edit = Edit(file, site, self.name)
        reads = file.reads.values()
        if direct > before or asks_more(source_of(file.source), reads, asked.values()):
            asked, direct = dict(file.reads), before
        elif len(asked) < min(len(file.reads), context.machine.threads):
            remarks.missed(self.name, file.key, "there would be fewer reads than threads")
            asked, direct = dict(file.reads), before
        if self._is_much(direct, least):
            if self._by_units(edit, asked, context, before, direct):
                return
            edit = Edit(file, site, self.name)
        if asked.keys() == file.reads.keys() or not remarks.allow(self.name, file.key):
            return
        for key, box in asked.items():
            if key not in file.reads:
                edit.nodes[key] = edit.read(key, box)
        remarks.applied(self.name, file.key, f"{len(file.reads)} reads become {len(asked)}")
        edit.put()

    def _by_units(
        self, edit: Edit, asked: dict[Key, Box], context: Context, before: int, direct: int
    ) -> bool:
        """Put blocks together from aligned reads; False where that does not pay."""
        file, remarks = edit.file, context.remarks
        blocks = edit.site.in_turn({**asked, **file.inside})
        boxes = list(blocks.values())
        decoded = self._cut(edit, boxes, context)
        if decoded is None or not self._is_much(direct, decoded):
            return False
        copied = context.machine.threads * file.largest(boxes)
        if copied > self.max_held and 100 * direct <= (100 + _MUCH) * decoded:
            remarks.missed(self.name, file.key, _COPIES)
            return False
        added = edit.reads(boxes) - len(boxes)
        copying = sum(map(size, boxes)) * file.source.dtype.itemsize
        if loses_time(file, direct - decoded, added, copying):
            remarks.missed(self.name, file.key, _READS)
            return False
        if not remarks.allow(self.name, file.key):
            return False
        for key, box in asked.items():
            edit.nodes[key] = edit.block(key, box)
        for key, box in file.inside.items():
            try:
                edit.nodes[key] = edit.around(key, box)
            except Opaque:
                remarks.missed(self.name, key, "a task that cannot be read")
                return False
        if len(edit.units) > self.max_units * len(blocks):
            remarks.missed(self.name, file.key, _TOO_MANY)
            return False
        remarks.applied(self.name, file.key, f"{before} decoded chunks become {decoded}")
        edit.put()
        return True

    def _is_much(self, decoded: int, least: int) -> bool:
        """Chunks are decoded too often."""
        return 100 * decoded > (100 + self.worth) * least

    def _room(self, boxes: Iterable[Box], file: File, context: Context) -> int:
        """Bytes that may be held besides the blocks: less where there is a limit on all that is held."""
        limit = context.options.memory_limit
        most = self.max_held if limit is None else min(self.max_held, limit // _OF_LIMIT)
        return max(most, context.machine.threads * file.largest(boxes) // 10)

    def _cut(self, edit: Edit, boxes: list[Box], context: Context) -> int | None:
        """Cut into units that do not fill the memory: how many chunks are decoded, None if nothing fits."""
        file, remarks = edit.file, context.remarks
        room, axes = self._room(boxes, file, context), range(len(file.chunks))
        fitting = []
        # what lies across the leading axes mostly waits longest; across others, where columns are summed up
        for apart in (axes[:0], *[axes[:i] for i in axes[1:]], *[axes[i:] for i in axes[1:]]):
            edit.cut(boxes, apart)
            if sum(map(edit.count, boxes)) > 8 * self.max_units * len(boxes):
                remarks.missed(self.name, file.key, _TOO_MANY)
                return None
            decoded, held = edit.hold(boxes)
            if held <= room and not edit.asks_more(boxes):
                if not apart:
                    return decoded
                fitting.append((decoded, apart))
        if not fitting:
            remarks.missed(self.name, file.key, "chunks that lie in two blocks would fill the memory")
            return None
        decoded, apart = min(fitting, key=itemgetter(0))
        edit.cut(boxes, apart)
        edit.hold(boxes)
        return decoded
