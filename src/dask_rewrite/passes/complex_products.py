"""Products of complex numbers whose second factor is made inside of their task."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from types import MethodType
from typing import Any, ClassVar

from dask._task_spec import NestedContainer, Task

from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.nodes import NO_KWARGS, list_of, make_container, make_task, same
from dask_rewrite.graph.templates import is_template
from dask_rewrite.passes.context import Context


@dataclass(frozen=True, slots=True)
class ComplexProducts:
    """``mul(a, conj(b))`` in one task → ``reduce(mul, [a, conj(b)])``, where numbers may be complex.

    NumPy writes the product of large arrays into its second factor where nobody else has that, and swaps
    the two for it ("temporary elision"). A product of complex numbers is rounded differently then. Dask
    holds each factor by its name; a list holds it as well. Legal always: the same operation is called with
    the same arguments. Looked at are graphs of arrays that are declared complex, and delayed values, of
    which nothing is declared; products of other numbers do not depend on their order.
    """

    name: ClassVar[str] = "complex-products"

    def run(self, graph: Graph, context: Context) -> Graph:
        declared = context.declared
        everywhere = declared is not None and declared.any_complex
        work = _Work()
        made: dict[Any, Any] = {}
        for tasks in context.by_function(graph).values():
            for task in tasks:
                if everywhere or type(task.key) is str:
                    new = work.held(task)
                    if new is not task and context.remarks.allow(self.name, task.key):
                        made[task.key] = new
        if not made:
            return graph
        context.remarks.applied(self.name, None, f"products that hold their second factor: {len(made)}")
        return graph.with_nodes({**graph.nodes, **made})


class _Work:
    """Expressions written anew, templates once for all tasks that call them; nesting is bounded."""

    def __init__(self) -> None:
        self._templates = ByIdentity[Any]()

    def held(self, node: Any) -> Any:
        """The same expression with second factors held; the same object where there are none."""
        if isinstance(node, NestedContainer):
            args = self._all(node.args)
            return node if same(args, node.args) else make_container(node, args, node._dependencies)
        if type(node) is not Task:
            return self._templates.of(node.__self__, self._call) if is_template(node) else node
        func, args = (
            self.held(node.func) if type(node.func) is MethodType else node.func,
            self._all(node.args),
        )
        values = self._all(node.kwargs.values()) if node.kwargs else ()
        if func is operator.mul and len(args) == 2 and type(args[1]) is Task:
            func, args = reduce, (operator.mul, list_of(args))
        elif func is node.func and same(args, node.args) and same(values, node.kwargs.values()):
            return node
        kwargs = dict(zip(node.kwargs, values)) if values else NO_KWARGS
        return make_task(node.key, func, args, kwargs, node._dependencies, node._data_producer)

    def _all(self, args: Iterable[Any]) -> tuple[Any, ...]:
        return tuple([self.held(arg) if isinstance(arg, (Task, MethodType)) else arg for arg in args])

    def _call(self, body: Task) -> Any:
        return self.held(body).__call__
