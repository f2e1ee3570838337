"""Graphs of X @ X.T without work in them: what each task needs, makes, and costs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

LOAD, PRODUCT, SUM, NOTE, GATE = range(5)


@dataclass(slots=True)
class Work:
    """A graph over numbered tasks, in an order in which each stands behind its inputs."""

    inputs: list[tuple[int, ...]] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)
    flops: list[float] = field(default_factory=list)
    #: the worker on which a task has to run, where somebody decided that
    home: dict[int, int] = field(default_factory=dict)

    def add(self, kind: int, inputs: Sequence[int], nbytes: int = 0, flops: float = 0.0) -> int:
        self.inputs.append(tuple(inputs))
        self.kind.append(kind)
        self.nbytes.append(nbytes)
        self.flops.append(flops)
        return len(self.kind) - 1

    def __len__(self) -> int:
        return len(self.kind)

    def users(self) -> list[list[int]]:
        """Who needs each task."""
        found: list[list[int]] = [[] for _ in self.kind]
        for task, inputs in enumerate(self.inputs):
            for one in dict.fromkeys(inputs):
                found[one].append(task)
        return found

    def dask_order(self) -> list[int]:
        """The priorities that dask gives to these tasks."""
        from dask._task_spec import Task, TaskRef
        from dask.order import order

        graph: dict[Any, Any] = {
            task: Task(task, max, *map(TaskRef, dict.fromkeys(inputs)))
            for task, inputs in enumerate(self.inputs)
        }
        found = order(graph)
        return [found[task] for task in range(len(self))]


def products(rows: int, slabs: int, side: int, slab: int, split: int = 4) -> Work:
    """X @ X.T as dask builds it: loads, products, and a tree of sums for each output block.

    >>> len(products(4, 80, 500, 500))  # dask: 2,032
    2048
    """
    work = Work()
    load = {(i, k): work.add(LOAD, (), 8 * side * slab) for k in range(slabs) for i in range(rows)}
    for i, j in itertools.product(range(rows), repeat=2):
        level = [
            work.add(PRODUCT, (load[i, k], load[j, k]), 8 * side * side, 2.0 * side * side * slab)
            for k in range(slabs)
        ]
        while len(level) > 1:
            level = [
                work.add(SUM, level[at : at + split], 8 * side * side, 8.0 * side * side)
                for at in range(0, len(level), split)
            ]
    return work


def accumulated(
    rows: int,
    slabs: int,
    side: int,
    slab: int,
    *,
    width: int = 1,
    look: int = 2,
    every: int = 1,
    notes: bool = False,
    lockstep: bool = False,
    chains: int = 1,
    grid: int = 0,
    layers: int = 1,
) -> Work:
    """X @ X.T accumulated: one task for each output block and step of ``width`` slabs.

    Parameters
    ----------
    rows, slabs : int
        Blocks of X.
    side, slab : int
        Rows and columns of a block.
    width : int
        Slabs that one task adds.
    look, every : int
        Loads of a step wait for the gate so many steps before; a gate stands behind each so many steps.
    notes : bool
        What a gate waits for is noted where it lies, so that accumulators do not travel to it.
    lockstep : bool
        All of a step waits for the gate before it: accumulators of one step only are held.
    chains : int
        Of each output, added up at the end.
    grid, layers : int
        Outputs are placed on grid x grid x layers workers: by rows, columns and chains.

    Examples
    --------
    >>> len(accumulated(4, 80, 500, 500, width=2, look=1))
    999
    """
    work = Work()
    block, out, flops = 8 * side * slab, 8 * side * side, 2.0 * side * side * slab
    last: dict[tuple[int, int, int], int] = {}
    gates: dict[int, int] = {}
    rounds = -(-slabs // (width * chains))
    for step in range(rounds):
        before = (step - look + 1) // every * every - 1
        wait = (gates[before],) if before in gates else ()
        start = step * width * chains
        load = {
            (i, k): work.add(LOAD, wait, block)
            for k in range(start, min(start + width * chains, slabs))
            for i in range(rows)
        }
        for chain in range(chains):
            here = range(start + chain * width, min(start + (chain + 1) * width, slabs))
            for i, j in itertools.product(range(rows), repeat=2) if here else ():
                needs = [load[r, k] for k in here for r in dict.fromkeys((i, j))]
                needs += [last[i, j, chain]] if (i, j, chain) in last else []
                needs += [gates[step - 1]] if lockstep and step else []
                last[i, j, chain] = task = work.add(PRODUCT, needs, out, flops * len(here))
                if grid:
                    layer = chain % layers * grid
                    work.home[task] = (layer + i * grid // rows) * grid + j * grid // rows
        if (step + 1) % every == 0 and step + (1 if lockstep else look) < rounds:
            waits = list(last.values())
            if notes:
                waits = [work.add(NOTE, (one,)) for one in waits]
            gates[step] = work.add(GATE, waits)
    if chains > 1:
        for i, j in itertools.product(range(rows), repeat=2):
            ends = [last[i, j, chain] for chain in range(chains) if (i, j, chain) in last]
            work.add(SUM, ends, out, 8.0 * side * side)
    return work
