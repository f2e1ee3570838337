"""Results that are light beside the block that all of them wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from dask._task_spec import DataNode, Task
from dask.typing import Key

from dask_rewrite.analysis.estimates import estimate
from dask_rewrite.passes.siblings.slices import takes_part
from dask_rewrite.passes.site import Site

#: Tasks that go together, at least.
FEWEST = 2
#: All results together are at most one part in so many of a block. Of tiny blocks batches are made.
_LIGHT, TINY = 8, 65_536
#: Bytes of results that may wait for one another at one level of the graph; above that, none weighs so many
#: times what another does: one that is soon let go of would be held for one that is not.
_HELD, _ALIKE = 2**24, 4

#: Tasks that go together: their keys, and the slices that become part of each.
Group: TypeAlias = list[tuple[Key, list[Key]]]
#: Light tasks with the bytes of what they give, and the bytes of their block.
Weighed: TypeAlias = tuple[list[tuple[Key, int]], int]


def light(group: Group, needs: frozenset[Key], largest: int, site: Site) -> Weighed | None:
    """Those of a group that are light beside the largest of the blocks that they need; None if too few are.

    What takes slices stays: those let go of their blocks. So do views, which would hold the block.
    """
    if largest <= TINY or len(group) < FEWEST:
        return None
    sizes = [(key, estimate(site.facts, key)) for key, slices in group if not slices]
    parts = len(sizes)  # each of whom may be sent what all of them give
    known = [(key, size.nbytes) for key, size in sizes if size is not None]
    few = [each for each in known if is_light(each[1] * parts, largest) and each[1] * parts**2 <= largest]
    edges = {key for key, _ in sizes if takes_part(site.graph.nodes[key])}
    if not edges.issubset([key for key, _ in few]):  # those that stay take as long as all of them
        few = [(key, size) for key, size in few if key not in edges]
    few = [(key, size) for key, size in few if key in edges or site.effect(key) == "fresh"]
    keys = [key for key, _ in few]
    if len(keys) < FEWEST or len(keys) + _is_only_for(keys, needs, site) <= 1 + sum(_followed(keys, site)):
        return None
    return few, largest


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
