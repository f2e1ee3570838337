"""Heavy constants and functions that many tasks carry."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, ClassVar

from dask._task_spec import DataNode, GraphNode, List, Task, TaskRef
from dask.typing import Key

from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.held import Held, can_be_hole
from dask_rewrite.graph.labels import functions_of
from dask_rewrite.graph.names import fingerprint
from dask_rewrite.graph.nodes import NO_KWARGS, func_of, make_task
from dask_rewrite.graph.templates import calls_alike, inputs_of_call, template_of_call
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.hoist.constants import Carried, promising
from dask_rewrite.passes.hoist.size_bounds import suspects
from dask_rewrite.passes.hoist.sizes import NOTHING, Scales, Weight
from dask_rewrite.remarks import Remarks


@dataclass(frozen=True, slots=True)
class Hoist:
    """``f(x0, model), f(x1, model), ...`` → ``f(x0, call(c)), f(x1, call(c)), ...`` and one key ``c``.

    Otherwise each task takes a copy of its own over the wire: 1000 tasks with an object of 240 kB are
    244 MB. The object may stand in arguments, containers, closures, `functools.partial`, bound methods or
    attributes, and functions are objects too. Always legal: the value of the key is a `Held`, so that
    tasks still share the object in this process, and each still has a private copy on a cluster.

    Parameters
    ----------
    min_bytes : int
        What is smaller costs less to send than to look after: a dependency takes a scheduler and a
        worker a tenth of a millisecond, in which they pickle and unpickle some 8 kB.
    min_saved : int
        Bytes that a key must save in all, as it is one more task.
    """

    name: ClassVar[str] = "hoist"
    min_bytes: int = 8192
    min_saved: int = 65_536

    def run(self, graph: Graph, context: Context) -> Graph:
        remarks = context.remarks
        scales = Scales(self.min_bytes)
        often = self.min_saved // self.min_bytes
        tasks = promising(graph.nodes, scales, often)
        if not tasks:
            return graph
        carried = Carried(tasks, scales)
        candidates = suspects(self._candidates(tasks, carried, scales, often), scales)
        weights = {at: weight for at, each in candidates.items() if (weight := scales.weigh(each)).cores}
        made: dict[Key, GraphNode] = {}
        if weights:
            counts = carried.counts()
            heavy = self._heavy(weights, counts, scales)
            if heavy:
                uses = _uses(tasks, heavy, carried, counts, context)
                made = self._hoisted(uses, scales, remarks, graph.nodes)
        for kind, error in scales.failed.items():
            remarks.missed(self.name, None, f"{kind} cannot be weighed: {error}")
        if not made:
            return graph
        return graph.with_nodes({**graph.nodes, **made})

    def _candidates(self, tasks: list[Task], carried: Carried, scales: Scales, often: int) -> dict[int, Any]:
        """What may be heavy, by identity: objects, and templates if one of them is worth a look."""
        if any(scales.weigh(each).cores for each in suspects(carried.inside, scales).values()):
            return {**carried.objects, **carried.templates}
        times = Counter(map(id, map(func_of, tasks)))
        templates = {at: each for at, each in carried.templates.items() if times[at] > often}
        return {**carried.objects, **templates}

    def _heavy(self, weights: dict[int, Weight], counts: Counter[int], scales: Scales) -> set[int]:
        """Which of the objects hold parts that would be worth a key."""
        times: Counter[int] = Counter()
        for at, weight in weights.items():
            times.update({id(core): counts[at] for core in weight.cores})
        return {
            at
            for at, weight in weights.items()
            if sum((times[id(core)] - 1) * scales.core_bytes(core) for core in weight.cores) >= self.min_saved
        }

    def _hoisted(
        self, uses: list[_Use], scales: Scales, remarks: Remarks, nodes: Container[Key]
    ) -> dict[Key, GraphNode]:
        """The tasks over keys, and the keys."""
        apart = self._parts(uses, scales, remarks, nodes)
        made: dict[Key, GraphNode] = {}
        for use in uses:
            key = use.tasks[0].key
            parts = apart.get(id(use), [])
            if use.whole and remarks.allow(self.name, key):
                name = self._key_name([use], (), nodes)
                made[name] = DataNode(name, Held(use.function))
                use.move(made, _call(TaskRef(name)), frozenset((name,)))
                size = _size(scales.nbytes(use.weight))
                remarks.applied(self.name, key, f"{size} of {len(use.tasks)} tasks")
            elif not use.whole and parts and remarks.allow(self.name, key):
                for name, cores in parts:
                    made.setdefault(name, DataNode(name, Held(tuple(cores))))
                names = frozenset([name for name, _ in parts])
                held = List(*[_call(TaskRef(name)) for name, _ in parts])
                buffers = make_task(None, repeat, (held,), NO_KWARGS, names)
                given = Held(use.function, [tuple(cores) for _, cores in parts])
                use.move(made, make_task(None, operator.call, (given,), {"buffers": buffers}, names), names)
                size = _size(sum(scales.core_bytes(core) for _, cores in parts for core in cores))
                remarks.applied(self.name, key, f"{size} in {len(use.tasks)} tasks, shared with others")
        return made

    def _key_name(self, users: Sequence[_Use], cores: Sequence[Any], nodes: Container[Key]) -> str:
        """Made from the tasks that use the key: their names, what they need, what they call, and which parts.

        Names alone do not say what it is. What is computed together with a dataframe is rewritten in
        several graphs, which dask puts together by their keys: a task may call more in one than in another.
        Two programs on a scheduler may share tasks and not all of what these carry: other parts are then left
        for others to use as well. In whichever order they meet it, what is the same has the same name.
        """
        each = sorted([*use.needs(), *use.calls(), *use.places(cores)] for use in users)
        name = f"{self.name}-" + fingerprint([repr(self), *map(repr, each)])
        while name in nodes:  # the same tasks carried something else when they were optimized before
            name = f"{self.name}-" + fingerprint([name])
        return name

    def _parts(
        self, uses: list[_Use], scales: Scales, remarks: Remarks, nodes: Container[Key]
    ) -> dict[int, list[tuple[str, list[Any]]]]:
        """What of each use becomes parts of which key; marks uses that become a key as a whole."""
        carriers: dict[int, list[_Use]] = {}  # of each heavy part
        parts: dict[int, Any] = {}
        for use in uses:
            use.weight = scales.weigh(use.function)
            for core in use.weight.cores:
                carriers.setdefault(id(core), []).append(use)
                parts[id(core)] = core
        together: dict[tuple[int, ...], list[Any]] = {}  # parts that the same tasks carry
        for at, users in carriers.items():
            together.setdefault(tuple(map(id, users)), []).append(parts[at])
        apart: dict[int, list[tuple[str, list[Any]]]] = {}
        for cores in together.values():
            users = carriers[id(cores[0])]
            key = users[0].tasks[0].key
            count = sum(len(use.tasks) for use in users)
            if count == 1:
                continue
            if not all(use.weight.movable for use in users):
                remarks.missed(self.name, key, "it holds a future or a client")
            elif (count - 1) * sum(map(scales.core_bytes, cores)) < self.min_saved:
                remarks.missed(self.name, key, "a key would save less than min-saved")
            elif len(users) == 1 or not (cores := [core for core in cores if can_be_hole(core)]):
                for use in users:
                    use.whole = len(use.tasks) > 1
            else:
                name = self._key_name(users, cores, nodes)
                for use in users:
                    apart.setdefault(id(use), []).append((name, cores))
        return apart


@dataclass(slots=True)
class _Use:
    """Tasks that call one heavy function, each with arguments of its own."""

    function: Any
    tasks: list[Task] = field(default_factory=list)
    arguments: list[tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    weight: Weight = NOTHING
    whole: bool = False
    #: Which arguments of its tasks are part of the function.
    outline: str = ""

    def needs(self) -> list[str]:
        """The tasks and what each waits for, in the order of names."""
        return sorted(repr([str(task.key), *sorted(map(str, task._dependencies))]) for task in self.tasks)

    def calls(self) -> list[str]:
        """What one of them calls, the same one in whichever order they stand."""
        return [self.outline, *functions_of(min(self.tasks, key=lambda task: str(task.key)))]

    def places(self, cores: Sequence[Any]) -> list[str]:
        """Where in the function each of these heavy parts stands."""
        places = {id(core): str(at) for at, core in enumerate(self.weight.cores)}
        return [places[id(core)] for core in cores]

    def move(self, made: dict[Key, GraphNode], function: Task, deps: frozenset[Key]) -> None:
        """Put the tasks into ``made``, with another expression for the function."""
        call = operator.call
        for task, (args, kwargs) in zip(self.tasks, self.arguments, strict=True):
            before = task._dependencies
            # Without dependencies it was a root task, and has to be queued and spread as one.
            producer = task._data_producer or not before
            made[task.key] = make_task(task.key, call, (function, *args), kwargs, before | deps, producer)


def _uses(
    tasks: list[Task], heavy: set[int], carried: Carried, counts: Counter[int], context: Context
) -> list[_Use]:
    """The tasks that hold something heavy, as calls of heavy functions."""
    shared = {at for at in carried.objects if counts[at] > 1}
    common = heavy | shared
    own = (carried.objects.keys() | carried.light) - common
    found: dict[Any, _Use] = {}
    for calls in calls_alike(tasks, common, own):
        task, shape = calls.tasks[0], calls.shape
        alone = common.isdisjoint(shape[2:])  # nothing but the function
        if not context.may_move(task.func) or heavy.isdisjoint(shape[1:2] if alone else shape):
            continue
        what = shape[1] if alone else tuple(shape)
        use = found.get(what)
        if use is None:
            function = task.func if alone else template_of_call(task, common, own).__call__
            outline = "" if alone else "".join("-" if each is None else "=" for each in shape)
            use = found[what] = _Use(function, outline=outline)
        use.tasks += calls.tasks
        if alone:
            use.arguments += [(task.args, task.kwargs) for task in calls.tasks]
        else:
            inputs = zip(*calls.inputs) if calls.inputs else repeat((), len(calls.tasks))
            use.arguments += [(inputs_of_call(row), NO_KWARGS) for row in inputs]
    return list(found.values())


def _call(function: Any) -> Task:
    return make_task(None, operator.call, (function,), NO_KWARGS, frozenset((function.key,)))


def _size(nbytes: int) -> str:
    return f"{nbytes / 1000:.0f} kB" if nbytes < 10**6 else f"{nbytes / 10**6:.1f} MB"
