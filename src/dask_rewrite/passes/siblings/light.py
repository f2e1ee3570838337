"""Results that are light beside the block that all of them wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from dask._task_spec import DataNode, Task
from dask.typing import Key

from dask_rewrite.analysis.estimates import estimate
from dask_rewrite.graph.graph import Nodes
from dask_rewrite.passes.siblings.slices import LARGE, takes_part
from dask_rewrite.passes.site import Site

#: Tasks that go together, at least.
FEWEST = 2
#: The same where what they give is not light beside a block.
LEAST = 4
#: All results together are at most one part in so many of a block. Of tiny blocks batches are made.
_LIGHT, TINY = 8, 65_536
#: Bytes of results that may wait for one another at one level of the graph; above that, none weighs so many
#: times what another does: one that is soon let go of would be held for one that is not.
_HELD, _ALIKE = 2**24, 4

#: Tasks that go together: their keys, and the slices that become part of each.
Group: TypeAlias = list[tuple[Key, list[Key]]]
#: Light tasks with the bytes of what they give, and the bytes of their block.
Weighed: TypeAlias = tuple[list[tuple[Key, int]], int]


def matters(group: Group) -> bool:
    """Enough tasks to go together, or slices that could become part of one."""
    return len(group) >= FEWEST or any(slices for _, slices in group)


def light(group: Group, needs: frozenset[Key], largest: int, site: Site) -> Weighed | None:
    """Those of a group that are light beside the largest of their blocks, no tiny one; None if too few are.

    What takes slices stays: those let go of their blocks. So do views, which would hold the block.
    """
    whole = [key for key, slices in group if not slices]
    edges = {key for key in whole if takes_part(site.graph.nodes[key])}
    most = largest // max(len(whole), _LIGHT) // len(whole) if whole else 0  # each may be sent what all give
    if any(_nbytes(key, most, site) is None for key in edges):  # those that stay take as long as all of them
        whole, edges = [key for key in whole if key not in edges], set()
    few = [(key, nbytes) for key in whole if (nbytes := _nbytes(key, most, site)) is not None]
    few = [(key, size) for key, size in few if key in edges or site.effect(key) == "fresh"]
    keys = [key for key, _ in few]
    if len(keys) < FEWEST or len(keys) + _is_only_for(keys, needs, site) <= 1 + sum(_followed(keys, site)):
        return None
    return few, largest


def _nbytes(key: Key, most: int, site: Site) -> int | None:
    """Bytes of a result, if it is known to have at most so many."""
    size = estimate(site.facts, key)
    return None if size is None or size.nbytes > most else size.nbytes


def is_light(nbytes: int, block: int) -> bool:
    """Whether results weigh little beside a block, which is not tiny."""
    return block > TINY and nbytes * _LIGHT <= block


def fitting(found: Sequence[Weighed], side_by_side: int) -> list[Group]:
    """The groups of one level that may go together, so that enough is left to be done side by side."""
    total = sum([block for _, block in found])
    few = [(members, block) for members, block in found if block * side_by_side <= total]
    if sum([size for members, _ in few for _, size in members]) > _HELD:
        few = [each for each in few if _alike([size for _, size in each[0]])]
    return [[(key, []) for key, _ in members] for members, _ in few]


def small(group: Group, largest: int, limit: int, site: Site, nodes: Nodes) -> Group:
    """Those of a group that are small; of a large block what takes slices, if all of that is light.

    Parameters
    ----------
    group : Group
        Tasks that need the same blocks.
    largest : int
        Bytes of the largest of these.
    limit : int
        Bytes of a small result.
    site : Site
        The graph as it was.
    nodes : mapping
        The nodes as they are by now.
    """
    others = [each for each in group if not takes_part(nodes[each[0]])]
    if largest > LARGE:
        others = [(key, slices) for key, slices in others if slices]
    if len(others) < LEAST:
        return []
    sizes = [(each, estimate(site.facts, each[0])) for each in others]
    few = [(each, size.nbytes) for each, size in sizes if size is not None and size.nbytes <= limit]
    if largest > LARGE and not is_light(sum([nbytes for _, nbytes in few]), largest):
        return []
    found = _for_as_long(few, site)
    return found if len(found) >= LEAST else []


def _for_as_long(found: Sequence[tuple[tuple[Key, list[Key]], int]], site: Site) -> Group:
    """Small tasks with the bytes of what they give, of which none is held long after it was used.

    In a list, what the next task would use at once stays as long as what has to wait for other blocks: of
    such tasks, those that wait go together, unless all others weigh less than they do.
    """
    group = [each for each, _ in found]
    soon = list(_followed([key for key, _ in group], site))
    waits = [each for each, is_soon in zip(found, soon) if not is_soon]
    if not waits or 2 * sum([nbytes for _, nbytes in waits]) >= sum([nbytes for _, nbytes in found]):
        return group
    return [each for each, _ in waits]


def _alike(sizes: Sequence[int]) -> bool:
    return max(sizes) <= _ALIKE * min(sizes)


def _is_only_for(keys: Sequence[Key], needs: frozenset[Key], site: Site) -> bool:
    """Whether nobody else needs the one block that tasks wait for: they become part of what makes it."""
    if len(needs) > 1:
        return False
    (block,) = needs
    made = type(site.node(block)) is Task and not site.wanted(block)
    return made and set(site.consumers(block)) == set(keys)


def _followed(keys: Sequence[Key], site: Site) -> Iterator[bool]:
    """Whether a task would be one with what follows, which waits for nothing else."""
    for key in keys:
        users = site.consumers(key)
        after = site.node(users[0]) if len(users) == 1 else None
        others = after.dependencies if type(after) is Task else ()
        yield bool(others) and all(each == key or type(site.node(each)) is DataNode for each in others)
