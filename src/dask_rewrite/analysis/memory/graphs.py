"""From graphs of tasks to graphs of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dask._task_spec import DataNode, GraphNode
from dask.order import order
from dask.typing import Key
from dask.utils import key_split

from dask_rewrite.analysis.memory.blocks import Result
from dask_rewrite.analysis.memory.sizes import SMALL
from dask_rewrite.analysis.memory.taken import TELLING
from dask_rewrite.analysis.memory.work import Work
from dask_rewrite.graph.gates import ungated
from dask_rewrite.graph.graph import reachable
from dask_rewrite.graph.nodes import NO_KWARGS, make_task
from dask_rewrite.graph.places import Empty, arrays_written, room_of

#: To tell which task ends first: seconds for any task, and bytes per second of work and of files.
TASK, WORK, FILES = 2e-4, 2e9, 5e8

#: Groups of tasks are queued like roots if they depend on fewer groups, of fewer tasks (``distributed``).
ROOTISH = 5


@dataclass(slots=True)
class Sized:
    """A graph as numbers, with the least, the likely and the most bytes where sizes are not known.

    Parameters
    ----------
    keys : sequence of Key
        Names of the numbered tasks.
    results : sequence of Result
        What each of them gives.
    works : tuple of Work
        One, or three if there are blocks of unknown size.
    unknown : int
        How many blocks have an unknown size.
    uncounted : list of int
        Those of which not even what they are made of is known: nobody can guess what they weigh.
    read, written, decoded : int
        Bytes out of files, into files, and of all stored chunks that hold a part of what is read.
    """

    keys: Sequence[Key]
    results: Sequence[Result]
    works: list[Work] = field(default_factory=list)
    unknown: int = 0
    uncounted: list[int] = field(default_factory=list)
    read: int = 0
    written: int = 0
    decoded: int = 0

    @property
    def likely(self) -> Work:
        """What is unknown is as large as what it is made of."""
        return self.works[len(self.works) // 2]


def sized(
    nodes: Mapping[Key, GraphNode],
    outputs: Iterable[Key],
    result_of: Callable[[Key], Result],
    threads: int,
    in_order: Callable[[dict[Key, Any]], Mapping[Key, Any]] = order,
) -> Sized:
    """Number the tasks of a graph, in dask's order, and find out what each makes.

    Parameters
    ----------
    nodes : mapping of Key to GraphNode
        The graph as it is scheduled.
    outputs : iterable of Key
        What is asked of it.
    result_of : callable
        From a key to its `Result`.
    threads : int
        Of all workers of a cluster together.
    in_order : callable
        Dask's order as schedulers in this process have it, or :func:`order_of_numbers`.
    """
    outputs = list(outputs)
    ranks = in_order(dict(nodes))
    # schedulers leave out what dask's own optimizer left behind
    keys = sorted(reachable(nodes, outputs), key=ranks.__getitem__)
    number = {key: i for i, key in enumerate(keys)}
    results = [result_of(key) for key in keys]
    found = Sized(keys, results)
    for each in results:
        found.read, found.written = found.read + each.read, found.written + each.written
        found.decoded += each.decoded
    inputs = [tuple([number[dep] for dep in nodes[key].dependencies if dep in number]) for key in keys]
    given = frozenset([i for i, key in enumerate(keys) if type(nodes[key]) is DataNode])
    views: list[tuple[int, ...]] = [
        (number[each.view],) if each.view in number and number[each.view] in needed else ()
        for each, needed in zip(results, inputs)
    ]
    sizes = _sizes(keys, inputs, views, given, found)
    roots = _roots(nodes, keys, threads)
    kept = frozenset([number[key] for key in outputs if key in number])
    # nothing is written into them yet, so that they take no time
    rooms = {i: room for i, key in enumerate(keys) if (room := room_of(nodes[key])) is not None}
    arrays = {
        i: _arrays(nodes[keys[i]], rooms[wholes[0]].empty)
        for i, wholes in enumerate(views if rooms else ())
        if wholes and wholes[0] in rooms
    }
    for nbytes in sizes:
        owned = [size if each.owned is None else each.owned for size, each in zip(nbytes, results)]
        done = nbytes[:]
        for i in rooms:
            done[i] = 0
        seconds = [
            TASK + each.read / FILES + (size + sum([done[one] for one in needed])) / WORK
            for size, each, needed in zip(done, results, inputs)
        ]
        found.works.append(Work(inputs, views, nbytes, owned, seconds, roots, given, kept, arrays))
    return found


def _arrays(node: GraphNode, empty: Sequence[Empty]) -> list[tuple[int, int]]:
    """The arrays that a task writes into, or shows as it gives them all: their numbers, and bytes."""
    written = arrays_written(ungated(node))
    return [(i, empty[i].nbytes) for i in (range(len(empty)) if written is None else written)]


def order_of_numbers(nodes: Mapping[Key, GraphNode]) -> dict[Key, int]:
    """Dask's order of the tasks under numbers that sort like their keys, the same in every process.

    Dask goes through sets of keys: with keys that have text in them, another process has another order.
    """
    keys = sorted(nodes, key=str)
    number = {key: i for i, key in enumerate(keys, 10 ** len(str(len(keys))))}
    numbered: dict[Key, GraphNode] = {}
    for key, node in nodes.items():
        new = number[key]
        if type(node) is DataNode:
            numbered[new] = DataNode(new, None)
            continue
        # sorted, since sets keep who came first
        needs = sorted([number[dep] for dep in node.dependencies if dep in number])
        numbered[new] = make_task(new, len, (), NO_KWARGS, frozenset(needs))
    ranks = order(numbered)
    return {key: ranks[new] for key, new in number.items()}


def _sizes(
    keys: Sequence[Key],
    inputs: Sequence[tuple[int, ...]],
    views: Sequence[tuple[int, ...]],
    given: frozenset[int],
    found: Sized,
) -> list[list[int]]:
    """Bytes of results; what is unknown is nothing, as large as what its last step takes, or as all it needs.

    What parts are taken of is no smaller than all of these, which are different ones, probably.
    """
    results = found.results
    unknown = [each.nbytes is None for each in results]
    found.unknown = sum(unknown)
    least = [each.nbytes or 0 for each in results]
    if not found.unknown:
        return [least]
    largest, all_of_them = max(least), sum(least) + sum([each.inside for each in results])
    likely, most, shown = least[:], least[:], [0] * len(results)
    for nbytes, wholes in zip(least, views):
        for whole in wholes:
            shown[whole] += nbytes
    # a partition of a collection tells something; what `delayed` was given may be a list of paths
    blind = {one for one in given if least[one] < TELLING or type(keys[one]) is not tuple}
    for i, needed in enumerate(inputs):
        if unknown[i]:
            inside = max(results[i].inside, shown[i])
            if inside <= SMALL and blind.issuperset(needed):
                blind.add(i)
            takes = _likely(results[i], {keys[one]: likely[one] for one in needed})
            likely[i] = max(shown[i], takes) or SMALL
            most[i] = max(largest, inside, min(all_of_them, sum([most[one] for one in needed])))
    found.uncounted = sorted(blind - given)
    return [least, likely, most]


def _likely(result: Result, needed: Mapping[Key, int]) -> int:
    """Bytes of a result of unknown size: those of the largest of what its last step takes."""
    if (taken := result.taken) is None:
        return max([result.inside, *needed.values()])
    return max([taken.nbytes, *[needed.get(key, 0) for key in taken.keys]]) or result.inside


def _roots(nodes: Mapping[Key, GraphNode], keys: Sequence[Key], threads: int) -> list[bool]:
    """What ``distributed`` queues: marked tasks, and large groups that hardly depend on anything."""
    members: dict[Any, int] = {}
    below: dict[Any, set[Any]] = {}
    groups = {key: key[0] if type(key) is tuple and key else key_split(key) for key in keys}
    for key, group in groups.items():
        members[group] = members.get(group, 0) + 1
        needs = below.setdefault(group, set())
        needs.update([groups[dep] for dep in nodes[key].dependencies if dep in groups])
    large = {
        group
        for group, count in members.items()
        if count > 2 * threads
        and len(below[group]) < ROOTISH
        and sum([members[each] for each in below[group]]) < ROOTISH
    }
    return [bool(nodes[key].data_producer) or groups[key] in large for key in keys]
