"""Small pieces of work and the task that gathers them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

from dask._task_spec import GraphNode, Task
from dask.typing import Key

from dask_rewrite.analysis.estimates import estimate, of_parts
from dask_rewrite.graph.graph import Graph, producers_first
from dask_rewrite.graph.names import is_finalize
from dask_rewrite.graph.nesting import Depths, depth_of, survey
from dask_rewrite.graph.nodes import under
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.movement.moves import GETITEMS
from dask_rewrite.passes.site import Site
from dask_rewrite.passes.small_work import SmallWork
from dask_rewrite.passes.stream.trees import combining
from dask_rewrite.passes.tiny_reads import tiny_reads
from dask_rewrite.passes.waiting import Waiting
from dask_rewrite.remarks import Remarks

#: Candidates that are looked at before the whole graph is: where blocks are large, none of them is small.
_SAMPLE = 24
#: Nesting that tasks may reach which read: the partial results of several steps are among them.
_DEEP = 20
#: Users of one block that are looked for: one task seldom takes in more of them.
_TAKEN_IN = 8
#: Partial results that a step of a reduction may wait for, if it takes in other such steps: stock joins four.
WIDE = 16


@dataclass(frozen=True, slots=True)
class FuseSmall:
    """``combine([f(a), f(b), f(c)])`` in four tasks → one task, where the blocks are known to be small.

    A task costs the scheduler more than it takes to slice or add a few kilobytes, and to run such work
    side by side gains nothing. Legal where the consumer is the only user of each producer; worth it
    where facts say that all blocks involved are small and the functions are known, so that nothing
    slow is hidden in them. Reads of files of which little is known or which are large stay tasks of their
    own; tiny ones, and tiny blocks that are made out of nothing, go together as long as there are several
    tasks for each thread. Small slices of a large
    block go into a task that waits for nothing else.

    Parameters
    ----------
    max_bytes : int
        Largest block, in bytes, that counts as small.
    max_tasks : int
        Tasks that one task may absorb.
    max_inputs : int
        Blocks that the fused task may wait for, unless it waited for as many before.
    max_depth : int
        Nesting that fused tasks may reach.
    max_reads : int
        Tiny reads that one task may make one after the other.
    """

    name: ClassVar[str] = "fuse-small"
    max_bytes: int = 65_536
    max_tasks: int = 32
    max_inputs: int = 8
    max_depth: int = 12
    max_reads: int = 64

    def run(self, graph: Graph, context: Context) -> Graph:
        remarks = context.remarks
        found = self._producers(graph, context)
        if not found:
            return graph
        nodes: Mapping[Key, Any] = graph.nodes
        site = Site(graph, context)
        reads, together = tiny_reads(graph, site, self.max_bytes, self.max_reads)
        groups = [keys for keys in found if _is_known(nodes[keys[0]], site)]
        producers = list(chain.from_iterable(groups))
        small = SmallWork(site, self.max_bytes)
        step = max(1, len(producers) // _SAMPLE)
        if not reads and not any(map(small.work, producers[::step])):
            return graph
        candidates = set(chain.from_iterable(map(small.among, groups)))
        candidates.difference_update(graph.outputs)
        waiting = Waiting(site) if any(_takes_held(nodes[keys[0]], site) for keys in groups) else None
        absorbing = _Absorbing(self, site, candidates, small, remarks, waiting)
        absorbing.take_reads(reads, together)
        fused = absorbing.run()
        if not fused:
            return graph
        remarks.applied(self.name, None, f"small tasks into their consumers: {fused}", fused)
        return graph.with_nodes(absorbing.nodes)

    def _producers(self, graph: Graph, context: Context) -> Collection[list[Key]]:
        """Tasks that one task uses, by layer and function; what loads or creates is not among them."""
        users = context.users(graph)
        groups: defaultdict[Any, list[Key]] = defaultdict(list)
        for key, node in graph.nodes.items():
            if type(node) is Task and node._dependencies and not node._data_producer and users[key] == 1:
                groups[key[0] if type(key) is tuple and key else key, id(node.func)].append(key)
        return groups.values()


def _is_known(task: Task, site: Site) -> bool:
    """Nothing slow is hidden in a task: all functions in it are known."""
    known = site.facts.knows(task.func)
    return known and (not site.effects.unknown(task) or site.facts.of(task.key) is not None)


def _takes_held(task: Task, site: Site) -> bool:
    """A task takes a block that others take as well, besides what it has to wait for."""
    return len(task._dependencies) > 1 and any(map(site.is_shared, task._dependencies))


class _Absorbing:
    """Puts producers in the place of the references to them."""

    def __init__(
        self,
        bounds: FuseSmall,
        site: Site,
        candidates: set[Key],
        small: SmallWork,
        remarks: Remarks,
        waiting: Waiting | None,
    ) -> None:
        self.nodes: dict[Key, Any] = dict(site.graph.nodes)
        self._before, self._site = site.graph.nodes, site
        self._candidates, self._remarks = candidates, remarks
        self._slices = small.slices  # of large blocks, and what took in such slices
        self._held, self._copies = small.held, small.copies
        self._waiting = waiting
        self._orders = waiting is not None and waiting.matters and len(site.graph.outputs) > 1
        self._max_tasks, self._max_depth = bounds.max_tasks, bounds.max_depth
        self._max_inputs, self._large = bounds.max_inputs, bounds.max_bytes // 2
        self._text = site.context.fuse_text_keys
        self._anyone = self._text and not site.graph.annotations and remarks.unlimited
        self._grown: dict[Key, tuple[int, int]] = {}  # how many tasks a task took in, how deep it nests now
        self._templates = Depths()
        self._may_move = site.context.may_move
        self._reads: dict[Key, int] = {}  # how many reads a task is, or took in
        self._together = 0
        self._files: set[Key] = set()

    def take_reads(self, reads: set[Key], together: int) -> None:
        """Let so many of these reads go into one task."""
        self._reads = dict.fromkeys(reads, 1)
        self._together = together
        self._files = {file for key in reads for file in self._before[key]._dependencies}
        self._candidates |= reads

    def run(self) -> int:
        """Go through the graph bottom up, and say how many tasks were absorbed."""
        nodes, candidates, may_move = self.nodes, self._candidates, self._may_move
        consumers = []
        for key, node in self._before.items():
            if type(node) is Task and not candidates.isdisjoint(node._dependencies):
                if may_move(node.func):
                    consumers.append(key)
        fused = 0
        regrouped = self._site.context.regrouped
        for key in producers_first(consumers, self._before):
            if taken := self._taken(nodes[key], self._together):
                nodes[key] = made = with_values(nodes[key], taken)
                if key in self._reads:
                    nodes[key] = under(key, made, True)
                fused += len(taken)
                for dep in taken:
                    del nodes[dep]
                if key in self._reads or not regrouped.isdisjoint(taken):
                    regrouped.add(key)
        return fused

    def _taken(self, task: Task, together: int, slices: bool = True) -> dict[Key, GraphNode]:
        """The producers that a task may absorb, within the bounds; so many reads are among them at most."""
        deepest, references, levels = survey(task, self._templates)
        waits_for = set(task._dependencies)
        twice: set[Key] = set()  # would run twice: nothing but copying may
        if len(references) > len(waits_for):
            twice = {key for key, times in Counter(references).items() if times > 1}
        nodes, candidates, grown = self.nodes, self._candidates, self._grown
        most, wide = self._inputs(task, len(waits_for))
        gathers = is_finalize(task.key)
        far = self._waiting if self._waiting is not None and self._waiting.far(references) else None
        room = self._max_tasks
        reads = 0
        taken: dict[Key, GraphNode] = {}
        for key, level in zip(references, levels):
            if not room:
                break
            once = key not in twice or key in self._copies
            if key not in candidates or not once or key in taken or (key in self._slices and not slices):
                continue
            producer = nodes[key]
            held, below = grown.get(key) or (0, -1)
            new = producer._dependencies - waits_for
            read = self._reads.get(key, 0)
            if reads + read > together:
                continue
            inputs = len(waits_for) + len(new)
            if held >= room or (inputs > most and not (inputs <= wide and combining(producer.func))):
                continue
            if new and len(waits_for) > 1 and self._lets_go(producer, gathers):
                continue
            if far is not None and self._frees(producer, far):
                continue
            if len(new) < len(producer._dependencies) and self._site.effect(task.key) == "unknown":
                continue  # perhaps into what the producer takes, which has to be done with it before
            below = level + 1 + (below if below >= 0 else depth_of(producer, self._templates))
            if below > (_DEEP if read or wide > most else self._max_depth):
                continue
            if not (self._anyone or self._allowed(task.key, key)):
                continue
            if below > deepest:
                deepest = below
            room -= held + 1
            reads += read
            waits_for |= new
            waits_for.discard(key)
            taken[key] = producer
        if reads and not waits_for <= self._files:
            return self._taken(task, 0, slices)  # reads are not made to wait for other work
        if slices and not self._slices.isdisjoint(taken):
            if len(waits_for) > 1:
                return self._taken(task, together, False)  # a large block is not held for other work
            self._slices.add(task.key)
        if taken:
            grown[task.key] = (self._max_tasks - room, deepest)
            if reads:
                self._reads[task.key] = reads
        return taken

    def _inputs(self, task: Task, now: int) -> tuple[int, int]:
        """How many blocks it may wait for, with a producer that goes; if that is a step of a reduction."""
        combines = combining(task.func)
        # where several results wait for the same blocks, steps of reductions say which of these go first
        most = max(0 if combines and self._orders else self._max_inputs, now) + 1
        return most, max(WIDE + 1, most) if combines and not self._orders else most

    def _frees(self, task: Task, waiting: Waiting) -> bool:
        """A block that was held for this task, the last that takes it, may be let go of after it."""
        site = self._site
        given = estimate(site.facts, task.key)
        if given is None:
            return False
        held = filter(site.is_shared, task._dependencies)
        freed = [dep for dep in held if waiting.is_last(task.key, site.consumers(dep))]
        sizes = [estimate(site.facts, dep) for dep in freed]
        return any(size is not None and size.nbytes >= 2 * given.nbytes for size in sizes)

    def _lets_go(self, task: Task, gathered: bool) -> bool:
        """It gives at most half of its one block: one with that (`fuse-chains`), or not small to be held.

        What is gathered is all held at one time: there it goes for what is made of several blocks as well.
        Blocks of other arrays than NumPy's stay where they are: they may not be fit to be sent at all.
        """
        facts, nodes = self._site.facts, self.nodes
        if facts.declared is not None and any(map(facts.declared.is_foreign, task._dependencies)):
            return True
        if task.key in self._slices or task.key in self._held:
            return False
        if len(task._dependencies) > 1 and not gathered:
            return False
        deps = [dep for dep in task._dependencies if type(nodes.get(dep)) is Task]
        if not deps:
            return False
        if gathered:
            own = [dep for dep in deps if self._only_for(task.key, dep)]
            sizes = [of_parts(facts, dep) or estimate(facts, dep) for dep in own]
            given = estimate(facts, task.key)
            total = sum([size.nbytes for size in sizes if size is not None])
            return given is not None and total >= max(1, 2 * given.nbytes)
        (dep,) = deps
        alone = self._site.used_once(dep)
        if not alone and id(task.func) in GETITEMS:
            return False
        taken = estimate(facts, dep)
        if taken is None or taken.nbytes <= (0 if alone else self._large):
            return False
        given = estimate(facts, task.key)
        return given is not None and taken.nbytes >= 2 * given.nbytes

    def _only_for(self, key: Key, dep: Key) -> bool:
        """One task takes a block, or has taken in all others that did."""
        consumers = [] if self._site.wanted(dep) else self._site.consumers(dep)
        return 0 < len(consumers) <= _TAKEN_IN and all(
            one == key or one not in self.nodes for one in consumers
        )

    def _allowed(self, consumer: Key, producer: Key) -> bool:
        if not self._text and (type(consumer) is str or type(producer) is str):
            return False
        same = self._site.same_annotations(consumer, producer)
        return same and self._remarks.allow(FuseSmall.name, producer)
