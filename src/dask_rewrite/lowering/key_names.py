"""Which names get the mark of this rewrite, and the mark: those of inner blocks, never those of outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from dask._task_spec import DataNode, GraphNode, Task
from dask.blockwise import Blockwise
from dask.highlevelgraph import Layer, MaterializedLayer

from dask_rewrite.graph.annotations import described
from dask_rewrite.graph.names import compound, fingerprint, layer_name, mark
from dask_rewrite.graph.nodes import needs_of
from dask_rewrite.lowering.fusion import Cluster
from dask_rewrite.lowering.references import References


def mark_layers(
    refs: References, order: Sequence[str], users: Mapping[str, Sequence[str]], salt: str
) -> tuple[str, dict[Any, str]]:
    """The token of this rewrite, and the new names of layers and text keys that are marked with it.

    A layer of one text key (delayed work) is marked only if something below it is: people watch
    those by name.

    Parameters
    ----------
    refs : References
        The raw graph, read.
    order : sequence of str
        Layers that are needed, consumers first.
    users : mapping of str to sequence of str
        The layers that use a layer.
    salt : str
        Other options give other names.
    """
    token = fingerprint(_identity(refs, order, users, salt))
    if refs.shared:
        return token, {name: name for name in refs.plans}
    names: dict[Any, str] = {}
    touched: set[str] = set()
    for name in reversed(order):
        layer = refs.hlg.layers[name]
        mixed = _text_keys_beside_blocks(refs, name, layer)
        below = bool(mixed) or any(dep in touched for dep in refs.hlg.dependencies.get(name, ()))
        if name in refs.plans or below or name not in refs.flat:
            touched.add(name)
        if name in refs.plans:
            names[name] = mark(name, token)
        elif below and isinstance(name, str) and name in refs.flat and name not in refs.output_keys:
            if isinstance(layer, MaterializedLayer) and not isinstance(refs.flat[name], DataNode):
                names[name] = mark(name, token)
        names.update((key, mark(key, token)) for key in mixed if key not in refs.output_keys)
    return token, names


def _identity(
    refs: References, order: Sequence[str], users: Mapping[str, Sequence[str]], salt: str
) -> list[object]:
    """What tells this rewrite from any other on a scheduler."""
    final = {n for n in refs.output_names if isinstance(n, str) and n in refs.output_keys}
    parts: list[object] = [salt]
    for name in sorted(map(str, order)):
        if name in final:
            continue
        if name.isdigit():  # dask names layers of plain dicts by their address
            parts.append(sorted(map(str, refs.hlg.layers[name])))
            continue
        parts.append(name)
        annotations = refs.hlg.layers[name].annotations if name in refs.hlg.layers else None
        if annotations and refs.annotated:
            parts.append(described(annotations))
    parts.append(sorted(str(n) for n in refs.output_names - final))
    parts.append(sorted(str(n) for n in users if any(user in final for user in users[n])))
    wanted = [key for key in refs.outputs if type(key) is tuple]
    for name in sorted(final):
        value = refs.flat.get(name)
        if isinstance(value, GraphNode):
            wanted.extend(value.dependencies)
        else:
            parts.append(name)
    parts.append(_partial(refs, wanted))
    return parts


def _text_keys_beside_blocks(refs: References, name: str, layer: Layer) -> list[str]:
    """The text keys of a layer of delayed work that holds the blocks of a collection too."""
    if name not in refs.flat or not isinstance(layer, MaterializedLayer) or len(layer) == 1:
        return []
    if not any(type(key) is tuple for key in layer.mapping):
        return []
    return [key for key, node in layer.mapping.items() if type(key) is str and type(node) is Task]


def _partial(refs: References, wanted: Sequence[Any]) -> list[str]:
    """The wanted keys of layers of which only a part is wanted."""
    counts = Counter(map(layer_name, set(wanted)))
    layers = refs.hlg.layers
    partial = {n for n, count in counts.items() if n not in layers or count != _size(layers[n])}
    return sorted(str(key) for key in wanted if layer_name(key) in partial) if partial else []


def _size(layer: Layer) -> int:
    """Number of keys, where that can be told without making them."""
    return len(layer) if isinstance(layer, (Blockwise, MaterializedLayer)) else -1


def name_clusters(refs: References, clusters: Iterable[Cluster], users: Mapping[str, Sequence[str]]) -> None:
    """Blocks of tasks that wait for nothing keep their names; others show what is fused in them.

    Whoever else holds a block that is only loaded and worked on loads it together with us. The scheduler
    cannot mix up what it knows by such a name: whatever was fused into the task, it depends on the same,
    which is nothing. The names of the others have the names of their members before them.
    """
    for cluster in clusters:
        # A value that one task uses will stand in that task.
        if all(len(users[name]) == 1 and refs.holds_values(name) for name, _ in cluster.inputs):
            plans = [refs.plans[name] for name in cluster.members]
            nodes = [arg.value for plan in plans for arg in plan.args.values() if arg.kind == "node"]
            if all(map(refs.is_data, chain(needs_of(nodes), *[plan.others for plan in plans]))):
                refs.names[cluster.root] = cluster.root
                continue
        if len(cluster.members) > 1:
            refs.names[cluster.root] = compound(reversed(cluster.members), refs.names[cluster.root])
