"""What a pass may use besides the graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from functools import cached_property
from typing import Any

from dask._task_spec import GraphNode, Task
from dask.typing import Key

from dask_rewrite.analysis.declared import Declared
from dask_rewrite.analysis.facts import Facts
from dask_rewrite.config import Options
from dask_rewrite.graph.by_identity import ByIdentity, Found
from dask_rewrite.graph.graph import Graph, Nodes, by_function, consumers_of, count_users, without_users
from dask_rewrite.graph.nodes import may_move
from dask_rewrite.remarks import Remarks
from dask_rewrite.scheduler import Machine, machine

#: What is known of nodes that were never counted.
_NEVER: tuple[object, Any] = (None, None)


class Context:
    """One run of the passes over one graph: remarks, options, facts, and what is counted once.

    A pass changes no graph that it was given, so what was counted holds for as long as the same
    tasks are asked about.

    Parameters
    ----------
    remarks : Remarks, optional
        Collects what was done, and is asked before each single rewrite.
    options : Options, optional
        The configuration as it was when the run began.
    fuse_text_keys : bool
        Whether tasks with text keys (delayed work) may be fused: people watch them by name.

    Examples
    --------
    >>> graph = Graph({"y": Task("y", abs, -1)}, ("y",))
    >>> [task.key for task in Context().calling(graph, {id(abs)})]
    ['y']
    """

    def __init__(
        self, remarks: Remarks | None = None, options: Options | None = None, *, fuse_text_keys: bool = True
    ) -> None:
        self.remarks = Remarks() if remarks is None else remarks
        self.options = Options() if options is None else options
        self.fuse_text_keys = fuse_text_keys
        self.declared: Declared | None = None  #: what collections say of their blocks
        self._movable = ByIdentity[bool]()
        self.regrouped: set[Key] = set()  #: tasks that make what they would wait for under dask's optimizer
        self.coarsened = False  #: blocks wait for neighbours that they do not wait for under dask's optimizer
        self.leftovers = True  #: there may be tasks that no output needs
        self.values: Set[Key] = frozenset()  #: values that stood in the raw graph
        self._facts: Facts | None = None
        self._counted: dict[Callable[..., Any], tuple[object, Any]] = {}  # nodes, and what was counted
        self._for_all_plans: dict[Callable[..., Any], Any] = {}

    def forked(self, options: Options) -> Context:
        """The same for another plan that goes on from here: neither sees what becomes of the other."""
        other = Context(self.remarks.copy(), options, fuse_text_keys=self.fuse_text_keys)
        other.declared, other.leftovers = self.declared, self.leftovers
        other.coarsened = self.coarsened
        other.values, other.regrouped = self.values, set(self.regrouped)
        other._for_all_plans = self._for_all_plans
        return other

    def for_all_plans(self, find: Callable[[Nodes], Found], graph: Graph) -> Found:
        """What is found of a graph, and holds for all plans that are made of it, see `forked`."""
        if find not in self._for_all_plans:
            self._for_all_plans[find] = find(graph.nodes)
        found: Found = self._for_all_plans[find]
        return found

    def may_move(self, func: Any) -> bool:
        """Whether a task that calls this may be merged, see `dask_rewrite.graph.nodes.may_move`."""
        return self._movable.of(func, may_move)

    @cached_property
    def machine(self) -> Machine:
        """The scheduler that will run the graph, as far as it can be known before."""
        return machine()

    def facts(self, lookup: Callable[[Key], GraphNode | None], owner: object = None) -> Facts:
        """What is known of blocks. Rewrites do not change values, so it is handed from pass to pass."""
        if self._facts is None:
            self._facts = Facts(lookup, declared=self.declared)
        return self._facts.looking_in(lookup, owner)

    def users(self, graph: Graph) -> Mapping[Key, int]:
        """How many tasks use each key; keys that nobody uses are absent, and looked up are zero."""
        nodes = graph.nodes
        known, consumers = self._counted.get(consumers_of, _NEVER)
        if known is nodes and self._counted.get(count_users, _NEVER)[0] is not nodes:
            self._counted[count_users] = nodes, Counter(dict(zip(consumers, map(len, consumers.values()))))
        return self._count(count_users, graph)

    def without_unused(self, nodes: Nodes, outputs: Sequence[Key]) -> None:
        """Take out, in place, what no output needs; the users of what is left are counted already."""
        self._counted[count_users] = nodes, without_users(nodes, outputs)

    def consumers(self, graph: Graph) -> dict[Key, list[Key]]:
        """The tasks that use each key; who changes that makes a copy."""
        return self._count(consumers_of, graph)

    def by_function(self, graph: Graph) -> Mapping[int, Sequence[Task]]:
        """The tasks that call each function, which are told apart by identity."""
        return self._count(by_function, graph)

    def _count(self, count: Callable[[Nodes], Found], graph: Graph) -> Found:
        """What is counted of the nodes of a graph, anew where these are not those of before."""
        if self._counted.get(count, _NEVER)[0] is not graph.nodes:
            self._counted[count] = (graph.nodes, count(graph.nodes))
        found: Found = self._counted[count][1]
        return found

    def calling(self, graph: Graph, functions: Collection[int]) -> list[Task]:
        """The tasks that call one of these functions, one function after the other.

        Most passes look for functions that a graph does not have: those need no look at each task.
        """
        called = self.by_function(graph)
        return [task for func in called if func in functions for task in called[func]]

    def rewritten(self, graph: Graph, name: str, made: Iterable[tuple[Task, Any]], what: str) -> Graph:
        """The graph with new tasks for old ones, where these are other objects and it is allowed."""
        new = {old.key: task for old, task in made if task is not old and self.remarks.allow(name, old.key)}
        if not new:
            return graph
        self.remarks.applied(name, None, f"{what}: {len(new)}")
        return graph.with_nodes({**graph.nodes, **new})

    def close(self) -> None:
        """Let go of what refers to itself, and of earlier graphs, which collecting garbage would look at."""
        if self._facts is not None:
            self._facts.close()
            self._facts = None
        self.declared = None
        self._counted.clear()
