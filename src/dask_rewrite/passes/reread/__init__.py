"""Blocks that would wait for a reduction over many blocks are read again instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from dask.typing import Key

from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.reread.copies import Copies
from dask_rewrite.passes.reread.parts import made_where_used, read_in_parts
from dask_rewrite.passes.reread.phases import Phases, find_phases
from dask_rewrite.passes.reread.repeatable import Repeatable
from dask_rewrite.passes.site import Site


@dataclass(frozen=True, slots=True)
class Reread:
    """``x`` in ``x.mean()`` and in ``x - x.mean()`` → read for the mean, and read again for what follows.

    A block that is used before and after a reduction over many blocks is held while all others are read, and
    so are all of these. To read it twice takes longer, and holds one block for each thread (compilers call
    this rematerialization). Each *phase*, up to such a reduction or after it, reads a block once; a copy
    becomes part of its only user, or waits for what its users wait for.

    Legal for reads of arrays and files, numbers whose seed stands in the graph, and cheap work known to be
    pure on these alone. Files must not change meanwhile, which is why somebody has to ask for it
    (``rewrite.reread``), or for less memory (``rewrite.memory-limit``).

    Parameters
    ----------
    min_bytes : int
        Smaller blocks are held.
    min_blocks : int
        Reductions that wait for no more than so many blocks for each thread hold little; 1: for one block.
    parts : int
        Blocks of which parts are taken are read in about so many parts, each on its own; 1: all at once.
    loads : int
        Blocks that only one task needs are read by that task, so many at most; 1: they are not.
    costly : bool
        Known work that takes longer than to go through a block once is done again as well.
    """

    name: ClassVar[str] = "reread"
    min_bytes: int = 65_536
    min_blocks: int = 4
    costly: bool = False
    parts: int = 1
    loads: int = 1

    def run(self, graph: Graph, context: Context) -> Graph:
        if not context.options.reread or graph.origin.shared:  # others may hold the same blocks
            return graph
        if self.parts > 1:
            graph = read_in_parts(graph, context, self.min_bytes, self.parts, self.name)
        graph = self._in_phases(graph, context)
        return made_where_used(graph, context, self.min_bytes, self.loads) if self.loads > 1 else graph

    def _in_phases(self, graph: Graph, context: Context) -> Graph:
        site = Site(graph, context)
        blocks = Repeatable(site, self.min_bytes, self.costly)
        most = self.min_blocks * context.machine.threads if self.min_blocks > 1 else 1
        if len(blocks.found) <= most:
            return graph
        phases = find_phases(graph.nodes, blocks.order, blocks.found, most)
        wanted, first = self._wanted(site, blocks, phases, context)
        if not wanted:
            return graph
        copies = Copies(site, phases, blocks.found, first, self.name)
        for phase in sorted(wanted):
            copies.put(phase, [key for key in blocks.order if key in wanted[phase]])
            reads = sum(blocks.found[key].reads == {key} for key in wanted[phase])
            context.remarks.applied(self.name, None, f"blocks that are read again: {reads}", reads)
        return replace(graph, annotations=copies.annotations).with_nodes(copies.nodes)

    def _wanted(
        self, site: Site, blocks: Repeatable, phases: Phases, context: Context
    ) -> tuple[Mapping[int, set[Key]], Mapping[Key, int]]:
        """The blocks that are copied in each later phase, and the phase in which each is used first."""
        wanted: dict[int, set[Key]] = {}
        earliest: dict[Key, int] = {}
        needs: dict[Key, _Needs] = {}
        for key in reversed(blocks.order):
            if key not in blocks.found:
                continue
            need = needs.pop(key, _Needs())
            for phase, users in phases.uses.get(key, {}).items():
                need.when.add(phase)
                if not all(blocks.stays(key, user) for user in users):
                    need.pays.add(phase)
                need.held = need.held or any(blocks.gathered(key, user) for user in users)
            if not (need.when or need.early):
                continue
            first = min(need.when | need.early)
            when = need.when | {first}
            small = not blocks.worth(key)
            later = when - {first} if need.pays - {first} and not need.held else None
            if later and not small and context.remarks.allow(self.name, key):
                for phase in later:
                    wanted.setdefault(phase, set()).add(key)
            else:
                when = {first}
            early = small and not blocks.found[key].shared  # made with the first read, and held
            if not early:
                earliest[key] = first
            for dep in site.graph.nodes[key]._dependencies:
                if dep in blocks.found:
                    below = needs.setdefault(dep, _Needs())
                    (below.early if early else below.when).update(when)
                    below.pays.update(() if early else when & need.pays)
        return wanted, earliest


@dataclass(slots=True)
class _Needs:
    """The phases in which a block is needed, those in which it may as well be made in the first that there
    is, and those in which not all that becomes of it is held anyway; whether it is held until the end."""

    when: set[int] = field(default_factory=set)
    early: set[int] = field(default_factory=set)
    pays: set[int] = field(default_factory=set)
    held: bool = False
