"""Which Blockwise layers become one task per block: clusters, grown from consumers to producers.

A layer joins the cluster of its consumers when *all* its uses lie in that cluster under one and the
same map from output block to its block, and no two output blocks share a block of it: then nothing
is computed twice, whatever the shape of the graph between them. Transposed views are free, and may be.
Each layer is looked at once, so the cost is linear in layers and arguments. Fan-in and loads are bounded,
the number of layers is not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, TypeAlias

import numpy as np

from dask_rewrite.graph.annotations import merged
from dask_rewrite.graph.names import layer_name
from dask_rewrite.lowering.blockwise import Coords, Plan

#: Map from the blocks of the cluster's root to the blocks of a member: positions, or -1 for block zero.
BlockMap: TypeAlias = tuple[int, ...]


class Cluster:
    """Layers that are computed by one task per block of the first of them, the root.

    Attributes
    ----------
    root : str
        The layer whose blocks the tasks produce.
    members : dict of str to BlockMap
        All layers, consumers before producers, each with its map from the root's blocks.
    inputs : dict
        What comes from outside, by (layer, map), with the number of blocks that it stands for.
    loads : int
        Members without inputs of their own.
    """

    def __init__(self, plan: Plan, annotations: dict[str, Any] | None) -> None:
        self.root = plan.name
        self.members: dict[str, BlockMap] = {}
        self.inputs: dict[tuple[str, BlockMap], int] = {}
        self.loads = 0
        self.annotations = annotations


#: Where each layer is used by Blockwise layers: by a cluster under a map, or in another way.
_Uses: TypeAlias = defaultdict[str, set[tuple[Cluster, BlockMap] | None]]


def find_clusters(
    order: Sequence[str],
    plans: Mapping[str, Plan],
    dependents: Mapping[str, Collection[str]],
    keep: Collection[str],
    *,
    max_inputs: int,
    max_loads: int,
    annotated: bool,
    fuse: bool = True,
    skip: Collection[str] = (),
    refused: set[str] | None = None,
) -> dict[str, Cluster]:
    """Group the Blockwise layers of ``order`` (consumers first); returns cluster by root name.

    Parameters
    ----------
    order : sequence of str
        All layers, consumers before producers.
    plans : mapping
        The Blockwise ones among them.
    dependents : mapping
        Layers that use each layer.
    keep : collection of str
        Layers with output keys: these stay roots.
    max_inputs : int
        A layer does not join if the task would then depend on more blocks than this, unless
        joining adds none.
    max_loads : int
        At most so many members that create or read data, so that fusion does not serialize I/O.
    annotated : bool
        Whether annotations count; layers with different ones are kept apart.
    fuse : bool
        If false, every layer is a cluster of its own.
    skip : collection of str
        Layers that are not needed.
    refused : set of str, optional
        Is filled with the layers that stayed apart because of a bound.
    """
    clusters: dict[str, Cluster] = {}
    uses: _Uses = defaultdict(set)
    for name in order:
        plan = plans.get(name)
        if plan is None or name in skip:
            continue
        annotations = plan.annotations if annotated else None
        use = next(iter(uses[name])) if len(uses[name]) == 1 else None
        if use and fuse and name not in keep and _may_join(plan, *use, plans, dependents[name]):
            cluster, block_map = use
            together = merged(annotations, cluster.annotations)
            if together is not None:
                if _fits(cluster, plan, block_map, max_inputs, max_loads):
                    cluster.annotations = together or None
                    _add(cluster, plan, block_map, uses)
                    continue
                if refused is not None:
                    refused.add(name)
        clusters[name] = Cluster(plan, annotations)
        _add(clusters[name], plan, tuple(range(len(plan.numblocks))), uses)
    return clusters


def _may_join(
    plan: Plan, cluster: Cluster, block_map: BlockMap, plans: Mapping[str, Plan], users: Collection[str]
) -> bool:
    """All users of a layer are Blockwise layers, and the map makes each of its blocks once."""
    return (
        plan.fusable
        and all(user in plans for user in users)
        and (_injective(block_map, plans[cluster.root].numblocks) or _only_looks(plan))
    )


#: Why a layer did not join.
REFUSAL = "the task would wait for more blocks than max-inputs, or load more than max-loads"


def compose(outer: BlockMap, inner: Sequence[Any]) -> BlockMap:
    """Map of root blocks to argument blocks, through a member's own map.

    Examples
    --------
    >>> compose((1, 0), (0, -1))
    (1, -1)
    """
    return tuple([-1 if p == -1 else outer[p] for p in inner])


def _add(cluster: Cluster, plan: Plan, block_map: BlockMap, uses: _Uses) -> None:
    cluster.members[plan.name] = block_map
    cluster.inputs.pop((plan.name, block_map), None)
    if plan.is_load:
        cluster.loads += 1
    fusable = plan.fusable
    for arg in plan.args.values():
        if arg.kind == "block":
            composed = compose(block_map, arg.coord_map)
            cluster.inputs[arg.value, composed] = 1
            uses[arg.value].add((cluster, composed) if fusable else None)
        elif arg.kind == "blocks":
            count = prod([len(where) for where in arg.coord_map if isinstance(where, list)])
            cluster.inputs[arg.value, (count,)] = count
            uses[arg.value].add(None)
        elif arg.kind == "node":
            for key in arg.value.dependencies if hasattr(arg.value, "dependencies") else (arg.value.key,):
                uses[layer_name(key)].add(None)
    for key in plan.others:
        uses[layer_name(key)].add(None)


def _injective(block_map: BlockMap, numblocks: Coords) -> bool:
    return all(count <= 1 or axis in block_map for axis, count in enumerate(numblocks))


def _only_looks(plan: Plan) -> bool:
    """A transposed view costs nothing to make again, and a worker would keep it as if it were a copy."""
    return plan.task.func is np.transpose and plan.simple and not plan.is_load


def _fits(cluster: Cluster, plan: Plan, block_map: BlockMap, max_inputs: int, max_loads: int) -> bool:
    if plan.is_load:
        return cluster.loads < max_loads
    added = 0
    for arg in plan.args.values():
        if arg.kind == "block":
            composed = compose(block_map, arg.coord_map)
            added += (arg.value, composed) not in cluster.inputs
        elif arg.kind == "blocks":
            return False  # a contraction stays the producer of its own tasks
    return added <= 1 or len(cluster.inputs) - 1 + added <= max_inputs


@dataclass(frozen=True, slots=True)
class FuseBlockwise:
    """Options of the fusion of Blockwise layers, which happens while they are lowered."""

    name: ClassVar[str] = "fuse-blockwise"
    max_inputs: int = 16
    max_loads: int = 8
