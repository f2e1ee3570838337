"""Moves that can be told to stay as they are without being read: single ones, and joins of slices."""

from __future__ import annotations

from typing import Any

from dask._task_spec import GraphNode, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.facts import Fact
from dask_rewrite.graph.nodes import literal
from dask_rewrite.passes.movement.moves import GETITEMS, JOINS, items_of
from dask_rewrite.passes.movement.pieces import selection
from dask_rewrite.passes.site import Site

#: Of slices that are joined, as many are of large blocks for each that is of a small one, which might travel
#: as it is.
BORDER = 8


def staying(moves: set[Key], site: Site, max_whole: int) -> frozenset[Key]:
    """The moves that no other move uses, that use none, and that are certain to stay as they are.

    So they are if their blocks, and what they take of them, have elements and are no constants: then each
    block is needed, and there is nothing to compose.
    """
    nodes, of = site.graph.nodes, site.facts.of
    used = moves.intersection(frozenset().union(*[nodes[key]._dependencies for key in moves]))
    annotated = bool(site.graph.annotations)
    found = []
    for key in moves - used:
        task: Any = nodes[key]
        deps = task._dependencies
        if not deps.isdisjoint(moves):
            continue
        for dep in deps:
            fact = of(dep)
            if fact is not None and (fact.fill is not None or 0 in fact.shape):
                break
            if annotated and not site.same_annotations(key, dep):
                break
        else:
            if _takes_all(task, fact if len(deps) == 1 else None):
                found.append(key)
    if not annotated:
        found.extend(_joins(moves, used, site, max_whole))
    return frozenset(found)


def _joins(moves: set[Key], used: set[Key], site: Site, max_whole: int) -> list[Key]:
    """Joins of blocks, and of slices of blocks, each of a block of its own; and these slices.

    Nothing can be composed there: a slice of what is no slice stays one, and a join cuts out of its blocks
    only what it takes of one block more than once. A join that takes an unknown block is one itself, unless
    its size is assumed and other moves use the join. Of known blocks, large ones do not travel whole.
    """
    nodes: Any = site.graph.nodes
    of, assumed = site.facts.of, site.facts.assumed
    joins = {key for key in moves if id(nodes[key].func) in JOINS}
    outer: dict[Key, Key | None] = {}  # the block that each dependency of a join is, or is a slice of
    found = []
    for key in joins:
        sources = set()
        small = 0
        for dep in nodes[key]._dependencies:
            if dep in outer:
                source = outer[dep]
            else:
                source = outer[dep] = _source(dep, nodes.get(dep), moves)
            if source is None or source in sources:
                break
            fact = of(source)
            if key in used and (fact is not None or assumed(source) is not None):
                break
            if fact is not None:
                if fact.fill is not None or not (dep == source or _takes_part(nodes[dep], fact.shape)):
                    break
                small += fact.nbytes <= max_whole
            sources.add(source)
        else:
            if small * BORDER <= len(sources):
                found.append(key)
    if not found:
        return found
    others = moves.difference(found)
    needed = frozenset().union(*[nodes[key]._dependencies for key in others])
    slices = frozenset().union(*[nodes[key]._dependencies for key in found]).intersection(moves)
    found.extend(slices.difference(needed))
    return found


def _source(key: Key, node: Any, moves: set[Key]) -> Key | None:
    """The block that a slice is taken of, or that a block is, if it is no move; None for other moves."""
    if key not in moves:
        return key
    args = node.args
    if id(node.func) not in GETITEMS or len(args) != 2 or type(args[0]) is not TaskRef or node.kwargs:
        return None
    source: Key = args[0].key
    return None if source in moves or len(node._dependencies) > 1 else source


def _takes_part(task: Any, shape: tuple[int, ...]) -> bool:
    """Whether a slice takes something of a block, and not all of it."""
    index = literal(task.args[1])
    try:
        ranges = [range(*item.indices(size)) for item, size in zip(index, shape, strict=True)]
    except (AttributeError, TypeError, ValueError):  # not a tuple of slices
        return False
    return all(ranges) and tuple(map(len, ranges)) != shape


def _takes_all(task: Any, fact: Fact | None) -> bool:
    """Whether a move of blocks that have elements is known to need all of them, or cannot be read."""
    args = task.args
    if not args:
        return False
    first = args[0]
    if type(first) is not TaskRef:
        refs = items_of(first)
        return refs is not None and all(type(ref) is TaskRef for ref in refs)
    if fact is None or id(task.func) not in GETITEMS:
        return True
    return len(args) == 2 and takes_something(args[1], fact.shape)


def takes_something(index: Any, shape: tuple[int, ...]) -> bool:
    """Whether an index is no plain one, or takes out at least one element.

    Examples
    --------
    >>> takes_something((slice(1, 3), 0), (4, 4)), takes_something(slice(4, 6), (4, 4))
    (True, False)
    """
    try:
        for item, size in zip(index, shape, strict=True):
            if not range(*item.indices(size)):
                break
        else:
            return True
    except (AttributeError, TypeError, ValueError):  # not a tuple of slices
        pass
    index = literal(index)
    found = None if isinstance(index, GraphNode) else selection(index, shape)
    return found is None or 0 not in found[0]
