"""The graph as the program built it, for what it tells of the graphs that are made of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from dask._expr import ProhibitReuse
from dask._task_spec import (
    Alias,
    DataNode,
    GraphNode,
    Task,
    TaskRef,
    _execute_subgraph,
    _identity_cast,
    convert_legacy_graph,
)
from dask.highlevelgraph import HighLevelGraph
from dask.typing import Key
from dask.utils import ensure_dict

from dask_rewrite.analysis.declared import Declared
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.analysis.memory.blocks import Result, Results
from dask_rewrite.analysis.memory.taken import Taken
from dask_rewrite.graph.batches import cells_of
from dask_rewrite.graph.held import unheld
from dask_rewrite.graph.names import JOINED, is_finalize, unmarked
from dask_rewrite.graph.templates import frame_of


class Original:
    """The raw graph, and what its blocks are.

    Parameters
    ----------
    hlg : HighLevelGraph or mapping, optional
        The raw graph; nothing is known without.
    """

    def __init__(self, hlg: Mapping[Key, Any] | None) -> None:
        self._hlg: Any = hlg
        self._stock: Mapping[Key, GraphNode] = {}
        self._results = Results(self._lookup, self._stated, self._at_most)

    @cached_property
    def _nodes(self) -> dict[Key, GraphNode]:
        """All tasks; of most graphs nobody asks for any."""
        nodes = {} if self._hlg is None else dict(convert_legacy_graph(ensure_dict(self._hlg)))
        nodes.update(_taken_apart(nodes))
        return nodes

    @cached_property
    def _blocks(self) -> dict[Key, Key]:
        """The blocks that delayed values are."""
        blocks: dict[Key, Key] = {}
        for key, node in self._nodes.items():
            if type(node) is Alias and type(key) is tuple:
                blocks.setdefault(node.target, key)
        return blocks

    @cached_property
    def _first(self) -> dict[Any, Key]:
        """The first block of each array."""
        first: dict[Any, Key] = {}
        for key in self._nodes:
            if type(key) is tuple and key:
                first.setdefault(key[0], key)
        return first

    def _stated(self, key: Key) -> Fact | None:
        """What collections state of blocks, and so of delayed values that are blocks under another name."""
        found = self._belief(key)
        return self._belief(self._blocks[key]) if found is None and key in self._blocks else found

    def _at_most(self, key: Key) -> int:
        """The bytes of a block that are corrected afterwards: it is part of one that has so many."""
        fact = self._belief(key, corrected=True)
        return 0 if fact is None else fact.nbytes

    def _belief(self, key: Key, corrected: bool = False) -> Fact | None:
        """What the array states of a block, renamed by a rewrite or not, if that is corrected or is not."""
        if not isinstance(self._hlg, HighLevelGraph) or type(key) is not tuple or not key:
            return None
        name: Any = key[0]
        if name not in self._hlg.layers and isinstance(name, str):
            name = unmarked(name)
        if self._declared.is_corrected(name) is not corrected:
            return None
        return self._declared.belief((name, *key[1:]))

    @cached_property
    def _declared(self) -> Declared:
        return Declared(self._hlg, {}, {})

    def rewritten(self, nodes: Mapping[Key, GraphNode]) -> Results:
        """Results of a rewritten graph: as known, or of the block that had the name before the rewrite."""

        def estimate(key: Key) -> Any:
            if type(key) is str:
                return self._results.value(unmarked(key))
            if type(key) is not tuple or not key or not isinstance(key[0], str):
                return None
            name, place = unmarked(key[0]), key[1:]
            if (found := self._results.value((name, *place))) is not None:
                return found if (cells := cells_of(nodes.get(key))) is None else [found] * cells[2]
            for where in (place, place[:-1]):  # a task that gives several results, or a step of a chain
                parts = [self._results.value((each, *where)) for each in name.split(JOINED)]
                if None not in parts:
                    return tuple(parts) if len(parts) > 1 else parts[0]
            # small tasks that were put together: each as the first block of the array
            first, last = self._first.get(name), unheld(nodes.get(key), nodes.get)
            while type(last) is Task and (frame := frame_of(last)) is not None:
                last = frame.bodies[-1]
            if first is None or getattr(last, "func", None) is not _identity_cast:
                return None
            return [self._results.value(first)] * len(last.args)

        results = Results(nodes.get, estimate, self._at_most)
        for key, node in nodes.items():
            if is_finalize(key) and frame_of(node) is not None and results.value(key) is None:
                # in one task with what nobody knows; it is named anew in each graph
                if not node._dependencies or results.sizes(key)[0] is None:
                    results.known[key] = self._answer
        return results

    @cached_property
    def _answer(self) -> int | None:
        """Bytes of the largest of the answers."""
        used = frozenset().union(*[node._dependencies for node in self._nodes.values()])
        nodes = self._nodes.items()  # what is only named anew may be a part of what was optimized before
        answers = [key for key, node in nodes if is_finalize(key) and type(node) is Task and key not in used]
        sizes = [self._results.sizes(key)[0] for key in answers]
        return max([size for size in sizes if size is not None], default=None)

    def stock(self, stock: Mapping[Key, GraphNode]) -> Stock:
        """Results of the tasks that dask's own optimizer made, from what the raw tasks in them do."""
        self._stock = stock
        self._nodes.update(_new_tasks(stock, self._nodes))
        return Stock(self._nodes, stock, self._results, self._lookup)

    def _lookup(self, key: Key) -> GraphNode | None:
        node = self._nodes.get(key)
        if node is None and (node := self._stock.get(key)) is not None:
            if (inside := _renamed(node)) in self._nodes:
                return Alias(key, inside)
        return node


class Stock:
    """Results of a graph that dask's own optimizer made; see :meth:`Original.stock`."""

    def __init__(self, raw: Any, stock: Mapping[Key, GraphNode], results: Results, lookup: Any) -> None:
        self._raw, self._stock, self._results, self._lookup = raw, stock, results, lookup

    def of(self, key: Key) -> Result:
        """What a task gives."""
        raw, stock, results = self._raw, self._stock, self._results
        if type(node := stock.get(key)) is Alias and node.target in stock:
            return Result(results.sizes(key)[0], 0, node.target)
        start = key
        while type(inner := self._lookup(start)) is Alias and start not in raw:
            start = inner.target
        nbytes, owned, view = results.sizes(start)
        while view is not None and view not in stock and view in raw:
            if results.traffic(view)[0]:  # fused into this task: slices become part of the read
                owned, view = nbytes, results.sizes(view)[2]
            else:
                _, owned, view = results.sizes(view)
        fused = [] if nbytes is not None else [results.sizes(one)[0] or 0 for one in self._fused(start)]
        inside = max(fused, default=0)
        taken = None if nbytes is not None else self._taken(start)
        if not (calls := results.calls(node)):
            return Result(nbytes, owned, view, inside=inside, taken=taken)
        traffic = map(results.traffic, (start, *self._fused(start)))
        read, written, decoded = map(sum, zip(*traffic))
        reads = results.reads(calls)
        if reads and all(part is not None for part, _ in reads):  # slices have become part of them
            read = sum([part or 0 for part, _ in reads])
            decoded = sum([part or 0 if chunks is None else chunks for part, chunks in reads])
        return Result(nbytes, owned, view, read, written, decoded, inside, taken)

    def _taken(self, start: Key) -> Taken | None:
        """What the last of the raw tasks of unknown size in a task takes."""
        most, keys, stack, seen = 0, set[Key](), [start], {start}
        while stack:
            if (taken := self._results.taken(stack.pop())) is None:
                return None
            most = max(most, taken.nbytes)
            for one in taken.keys - seen:
                seen.add(one)
                if one in self._stock or one not in self._raw:
                    keys.add(one)
                else:
                    stack.append(one)
        return Taken(most, frozenset(keys))

    def _fused(self, start: Key) -> Iterator[Key]:
        """The raw tasks below one that are in the same task."""
        raw, stock = self._raw, self._stock
        stack, seen = list(raw[start].dependencies) if start in raw else [], {start}
        while stack:
            one = stack.pop()
            if one in stock or one in seen or one not in raw:
                continue
            seen.add(one)
            yield one
            stack.extend(raw[one].dependencies)


def _new_tasks(stock: Mapping[Key, GraphNode], raw: Mapping[Key, GraphNode]) -> dict[Key, GraphNode]:
    """What follows the computation, named anew for each optimizer, where it was fused with other tasks."""
    nodes: Iterable[Any] = stock.values()
    fused = [node.args[0] for node in nodes if _renamed(node) is not None]
    return {
        key: node for tasks in fused for key, node in tasks.items() if is_finalize(key) and key not in raw
    }


def _taken_apart(nodes: Mapping[Key, GraphNode]) -> dict[Key, GraphNode]:
    """What stands in tasks that dask has fused or wrapped already, as arrays that ``delayed`` is given."""
    found: dict[Key, GraphNode] = {}
    stack: list[tuple[Key, Any]] = list(nodes.items())
    while stack:
        key, node = stack.pop()
        if type(node) is Task and node.func is ProhibitReuse._identity:
            node = node.args[0]
            found[key] = node.substitute({}, key)
        if _renamed(node) is not None:
            tasks, last, names, *given = node.args
            refs = {name: value.key for name, value in zip(names, given) if isinstance(value, TaskRef)}
            data = {name: _as_node(name, value) for name, value in zip(names, given) if name not in refs}
            inside: dict[Key, Key] = {name: ("inside", key, name) for name in (*tasks, *data)}
            new = refs | inside
            parts = {new[name]: each.substitute(new, new[name]) for name, each in (tasks | data).items()}
            found.update(parts)
            stack.extend(parts.items())  # which may be fused, too
            found[key] = Alias(key, inside[last])
    return found


def _as_node(name: Key, value: Any) -> Any:
    return value if isinstance(value, GraphNode) else DataNode(name, value)


def _renamed(node: Any) -> Any:
    """The last of the tasks that were fused into one."""
    is_fused = type(node) is Task and node.func is _execute_subgraph and len(node.args) > 1
    return node.args[1] if is_fused else None
