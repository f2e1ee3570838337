"""Long chains of one associative operation between Blockwise layers: ``((x0 + x1) + x2) + ...``.

A chain too long for one task per block would be cut by the bounds of fusion into a row of tasks that
wait for each other. It is lowered to one fold over all of its terms instead, the same operations in
the same order; the ``tree-sum`` pass then cuts that fold, knowing the blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from typing import Any

from dask._task_spec import List, Task, TaskRef
from dask.blockwise import blockwise_token

from dask_rewrite.analysis.folds import ASSOCIATIVE
from dask_rewrite.lowering.blockwise import Arg, Plan
from dask_rewrite.remarks import Remarks


def fold_chains(
    refused: Collection[str],
    plans: dict[str, Plan],
    users: Mapping[str, Sequence[str]],
    keep: Collection[str],
    remarks: Remarks,
) -> set[str]:
    """Put a fold in the place of each chain that fusion had to cut; returns the links not needed any more.

    Parameters
    ----------
    refused : collection of str
        Layers that did not join the cluster of their consumer because of its bounds.
    plans : dict
        Blockwise layers by name; the chains' last links are replaced.
    users : mapping
        Layers that use each layer.
    keep : collection of str
        Layers with output keys.
    remarks : Remarks
        Is asked before each rewrite, and told.
    """
    dropped: set[str] = set()
    below: dict[str, str] = {}  # from a link to the link that uses it
    for name, plan in plans.items():
        if (left := _left_link(plan, plans, users, keep)) is not None:
            below[left] = name
    for name in refused:
        if name not in below or name in dropped:
            continue
        last = name
        while last in below:
            last = below[last]
        links = [last]
        while (left := _left_link(plans[links[-1]], plans, users, keep)) is not None:
            links.append(left)
        if not remarks.allow("tree-sum", last):
            continue
        terms = [_argument(plans[links[-1]], 0), *(_argument(plans[link], 1) for link in reversed(links))]
        plans[last] = _fold(plans[last], terms)
        dropped.update(links[1:])
        remarks.applied("tree-sum", last, f"chain of {len(terms)} terms")
    return dropped


def _left_link(
    plan: Plan, plans: Mapping[str, Plan], users: Mapping[str, Sequence[str]], keep: Collection[str]
) -> str | None:
    """The link before this one: the same operation, used here alone and as the left operand."""
    if not _is_link(plan):
        return None
    left, right = _argument(plan, 0), _argument(plan, 1)
    before = plans.get(left.value)
    if (
        before is None
        or not _is_link(before)
        or before.task.func is not plan.task.func
        or right.value == left.value
        or not _block_by_block(left, plan)
        or before.numblocks != plan.numblocks
        or before.annotations != plan.annotations
        or before.name in keep
        or set(users[before.name]) != {plan.name}
    ):
        return None
    return before.name


def _is_link(plan: Plan) -> bool:
    task = plan.task
    args: Mapping[Any, Arg] = plan.args
    return (
        plan.simple
        and plan.fold is None
        and type(task) is Task
        and len(task.args) == 2
        and not task.kwargs
        and task.func in ASSOCIATIVE
        and all(type(arg) is TaskRef and args[arg.key].kind == "block" for arg in task.args)
    )


def _block_by_block(arg: Arg, plan: Plan) -> bool:
    where = arg.coord_map
    return len(where) == len(plan.numblocks) and all(
        position == axis or (position == -1 and plan.numblocks[axis] == 1)
        for axis, position in enumerate(where)
    )


def _argument(plan: Plan, position: int) -> Arg:
    return plan.args[plan.task.args[position].key]


def _fold(last: Plan, terms: Sequence[Arg]) -> Plan:
    args = {blockwise_token(i): term for i, term in enumerate(terms)}
    task = Task(None, reduce, last.task.func, List(*map(TaskRef, args)))
    return last.with_fold(task, args)
