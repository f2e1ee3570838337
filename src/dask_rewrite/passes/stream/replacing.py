"""Steps of reductions, and how they come into the graph: as chains, or as one tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dask._task_spec import TaskRef
from dask.typing import Key

from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.nodes import nameless, under
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.detach import MIN_BYTES, shortened
from dask_rewrite.passes.outline import Outliner
from dask_rewrite.passes.site import Site
from dask_rewrite.passes.stream.groups import Light
from dask_rewrite.passes.stream.slabs import Slab, Slabs
from dask_rewrite.passes.stream.trees import Tree, at_once
from dask_rewrite.passes.stream.write import combined, joined_key, part, slab_task, together


@dataclass(slots=True)
class Step:
    """What becomes one task: a slab, and of which keys it gives the values, one for each reduction."""

    slab: Slab
    gives: list[Key]


def leaf_steps(group: Sequence[Tree], slabs: Slabs, light: Light) -> list[Step] | None:
    """A step for each leaf; None if one has to stay as it is, or others need its blocks too.

    All steps wait for the same, besides what weighs nothing.
    """
    steps: list[Step] = []
    for gives in zip(*[tree.leaves for tree in group]):
        slab = slabs.gather(gives)
        if slab is None or not slab.whole:
            return None
        other = slab.needs ^ steps[0].slab.needs if steps else ()
        if not all(light(key, gives[0]) for key in other):
            return None  # blocks that others need stay for those, whatever is done here
        steps.append(Step(slab, list(gives)))
    return steps


def _one(steps: Sequence[Step]) -> Slab:
    """Several slabs as one."""
    if len(steps) == 1:
        return steps[0].slab
    return Slab([key for step in steps for key in step.slab.members])


class Replacing:
    """The graph with steps in the place of what they do."""

    def __init__(self, site: Site) -> None:
        self._before = site.graph
        short = shortened(site, MIN_BYTES)
        self._nodes: Mapping[Key, Any] = {**site.graph.nodes, **short} if short else site.graph.nodes
        self._made: dict[Key, dict[Key, Any]] = {}
        self._gone: set[Key] = set()
        self._outliner = Outliner()
        self._like: dict[Key, Key] = {}

    def trees(self, group: Sequence[Tree], steps: Sequence[Step]) -> None:
        """One tree for all of them."""
        token, of = self._before.origin.token, len(group)
        nodes, made = self._nodes, dict[Key, Any]()
        instead: dict[Key, Any] = {}
        for step in steps:
            key = joined_key(step.gives, token)
            result = together([TaskRef(each) for each in step.gives])
            made[key] = slab_task(key, step.slab, result, nodes, self._outliner)
            self._gone.update(step.slab.members)
            instead.update({each: part(key, i, of) for i, each in enumerate(step.gives)})
        for keys in reversed(list(zip(*[tree.inner for tree in group]))):
            key = joined_key(keys, token)
            parts = [nameless(with_values(nodes[each], instead)) for each in keys]
            made[key] = self._outliner.apart(under(key, together(parts)))
            self._gone.update(keys)
            instead.update({each: part(key, i, of) for i, each in enumerate(keys)})
        for tree in group:
            made[tree.root] = with_values(nodes[tree.root], instead)
        self._put(group, made)

    def chains(self, group: Sequence[Tree], sequences: Sequence[Sequence[Step]]) -> None:
        """Each step of a sequence is taken into what came before."""
        nodes, token, of = self._nodes, self._before.origin.token, len(group)
        inner: list[Any] = [nodes[tree.inner[-1]] for tree in group]
        width = max(map(at_once, inner))
        made: dict[Key, Any] = {}
        ends: list[Key] = []
        for steps in sequences:
            before: Key | None = None
            for start in range(0, len(steps), width):
                bundle = steps[start : start + width]
                key = joined_key([task.key for task in inner], token, len(made))
                results = []
                for i, task in enumerate(inner):
                    new = [TaskRef(step.gives[i]) for step in bundle]
                    parts = new if before is None else [part(before, i, of), *new]
                    results.append(combined(task, parts) if len(parts) > 1 else parts[0])
                made[key] = slab_task(key, _one(bundle), together(results), nodes, self._outliner)
                before = key
            if before is not None:
                ends.append(before)
        self._gone.update(key for steps in sequences for step in steps for key in step.slab.members)
        for i, tree in enumerate(group):
            self._gone.update(tree.inner)
            root: Any = nodes[tree.root]
            last = combined(root, [part(end, i, of) for end in ends])
            made[tree.root] = under(tree.root, last, root._data_producer)
        self._put(group, made)

    def _put(self, group: Sequence[Tree], made: dict[Key, Any]) -> None:
        """Everything new stands where the last root stood: after its users."""
        found = dict(reversed(made.items()))
        for tree in group:
            self._made[tree.root] = {tree.root: found.pop(tree.root)}
        last = group[-1].root
        self._made[last].update(found)
        self._like.update(dict.fromkeys(found, last))

    def result(self) -> Graph:
        """The graph after all."""
        graph = self._before
        if not self._made:
            return graph
        nodes: dict[Key, Any] = {}
        for key, node in graph.nodes.items():
            if key in self._made:
                nodes.update(self._made[key])
            elif key not in self._gone:
                nodes[key] = node
        annotations = {key: value for key, value in graph.annotations.items() if key in nodes}
        if graph.annotations:
            for key, like in self._like.items():
                if (found := graph.annotations.get(like)) is not None:
                    annotations[key] = found
        return replace(graph, nodes=nodes, annotations=annotations)
