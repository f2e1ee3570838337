"""The cost model: how to accumulate, from the sizes of a contraction and of the machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dask.utils import format_bytes

from dask_rewrite.passes.base import Missed
from dask_rewrite.scheduler import Machine

#: Terms that one task adds, at most.
MOST_TERMS = 4
#: Bytes of blocks that one task may wait for before it is worth a task of its own; on a cluster a task
#: costs about ten times as much.
SMALL_LOCAL, SMALL_CLUSTER = 2**19, 2**22
#: A step takes in as many slabs as weigh this part of all sums, which are held anyway; on a cluster it moves
#: blocks between workers, and waits for them.
ROOM_LOCAL, ROOM_CLUSTER = 0.25, 0.75
#: What dask would have to hold before gates are worth their tasks on a cluster.
GATES_CLUSTER = 2**26
#: Loads under way, per thread, beyond those that are being worked on.
AHEAD = 2
#: Steps in which one partial sum takes in values; with more, there are partial sums of partial sums.
LONGEST = 10
#: Sums, and blocks of a slab, that one task may work on; and how much smaller the sums must be than a block.
MOST_SUMS, SMALLER = 3, 8
#: A plan that saves less than this part of the bytes is not worth it.
GAIN = 0.8


def shown(nbytes: int) -> str:
    """Bytes as people read them."""
    return str(format_bytes(nbytes))


class Block(NamedTuple):
    """A block that terms need: its bytes, and the first and last term that do."""

    nbytes: int
    first: int
    last: int
    gated: bool


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the cost model knows of a contraction.

    Parameters
    ----------
    sums : int
        Output blocks that are computed from the same blocks.
    terms : int
        Of each sum: slabs of the contracted axis.
    accumulator : int
        Bytes of the largest partial sum.
    blocks : sequence of Block
        What the terms need.
    kept : bool
        All results are held until the last is there.
    below : sequence of Block
        What these are made from, where others need it too: it is there until they are made.
    rounds : bool
        The sums are of so few digits that long ones must be summed in blocks.
    """

    sums: int
    terms: int
    accumulator: int
    blocks: Sequence[Block]
    kept: bool = False
    below: Sequence[Block] = ()
    rounds: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks that the terms need."""
        return sum(block.nbytes for block in self.blocks)

    def before(self, machine: Machine) -> int:
        """Bytes that dask would hold: all blocks, and the results or those being worked on."""
        results = self.sums if self.kept else min(self.sums, machine.threads)
        return self.nbytes + results * self.accumulator

    @property
    def done_at_once(self) -> bool:
        """Whether all that needs a slab gives but few small sums: it can be done when the slab is there.

        Examples
        --------
        >>> blocks = [Block(320_000, k, k, True) for k in range(20)]
        >>> Sizes(2, 20, 3200, blocks).done_at_once, Sizes(8, 20, 3200, blocks).done_at_once
        (True, False)
        """
        most = max([block.nbytes for block in self.blocks], default=0)
        small = SMALLER * self.sums * self.accumulator <= most
        large = [block for block in self.blocks if SMALLER * block.nbytes > most]
        private = all(block.gated and block.first == block.last for block in large)
        few = self.sums <= MOST_SUMS and self.per_slab <= MOST_SUMS
        return small and private and few and not self.below

    def levels(self, chains: int, width: int) -> int:
        """Partial sums that each chain needs so that none of them takes in too many values.

        Examples
        --------
        >>> single = Sizes(1, 4000, 8, [], rounds=True)
        >>> single.levels(1, 1), single.levels(1, 4), single.levels(16, 1), single.levels(64, 4)
        (4, 3, 3, 2)
        """
        steps = math.ceil(self.terms / (chains * width))
        return math.ceil(math.log(max(2, steps), LONGEST) - 1e-9) if self.rounds else 1

    @property
    def per_slab(self) -> float:
        """Blocks that a slab needs."""
        return max(1.0, len(self.blocks) / self.terms)

    def held(self, width: int, ahead: int) -> int:
        """Most bytes of blocks held at a time: steps of ``width`` terms, loads so many steps ahead."""
        change = [0] * (self.terms + 1)
        for block in (*self.blocks, *self.below):
            begin = max(0, (block.first // width - ahead) * width) if block.gated else 0
            change[begin] += block.nbytes
            change[block.last + 1] -= block.nbytes
        most = now = 0
        for step in change:
            now += step
            most = max(most, now)
        return most


@dataclass(frozen=True, slots=True)
class Plan:
    """How a contraction is accumulated.

    Parameters
    ----------
    chains : int
        Of each sum, so that all threads have work.
    width : int
        Terms that one task adds.
    look : int
        Loads of step ``s + look`` start when step ``s`` is folded in; 0: no gates.
    every : int
        A gate stands after each so many steps.
    lockstep : bool
        A step waits for the gate of the step before, which holds the accumulators down to one generation;
        else each accumulator is noted on its own, so that it need not travel to the gate.
    peak : int
        Predicted bytes of blocks held.
    before : int
        Predicted without the rewrite.
    levels : int
        Partial sums that each chain holds at a time, see `chains.Partial`.
    """

    chains: int
    width: int
    look: int
    every: int
    lockstep: bool
    peak: int
    before: int
    levels: int = 1

    def steps(self, terms: int) -> list[list[list[int]]]:
        """For each chain its steps, for each step the numbers of the terms it adds.

        Examples
        --------
        >>> Plan(2, 2, 1, 1, False, 0, 0).steps(7)
        [[[0, 1], [4, 5]], [[2, 3], [6]]]
        """
        groups = [list(range(i, min(i + self.width, terms))) for i in range(0, terms, self.width)]
        return [groups[chain :: self.chains] for chain in range(self.chains)]

    def __str__(self) -> str:
        chains = "one chain" if self.chains == 1 else f"{self.chains} chains"
        if self.levels > 1:
            chains += f" in blocks ({self.levels - 1} more partial sums each)"
        gates = f"loads at most {self.look + self.every - 1} steps ahead" if self.look else "no gates"
        return (
            f"{chains} a block, {self.width} terms a step, {gates}; "
            f"predicted peak {shown(self.peak)} instead of {shown(self.before)}"
        )


def make_plan(sizes: Sizes, machine: Machine, limit: int) -> Plan | Missed:
    """The plan with the most parallelism that holds less than dask would, and no more than ``limit``.

    Examples
    --------
    >>> blocks = [Block(2_000_000, k, k, True) for k in range(80) for _ in range(4)]
    >>> plan = make_plan(Sizes(16, 80, 2_000_000, blocks), Machine(2, 1, 0), 2**40)
    >>> plan.peak, plan.before
    (52000000, 644000000)
    >>> make_plan(Sizes(16, 80, 2_000_000, blocks * 2), Machine(64, 1, 0), 2**40).chains
    4
    """
    before = sizes.before(machine)
    chains = max(1, min(math.ceil(machine.threads / sizes.sums), sizes.terms // 2))
    cluster = machine.workers > 1
    slab = max(1, sizes.nbytes // sizes.terms)
    least, part = (SMALL_CLUSTER, ROOM_CLUSTER) if cluster else (SMALL_LOCAL, ROOM_LOCAL)
    room = max(least, int(part * sizes.sums * sizes.accumulator))
    width = max(1, min(MOST_TERMS, room // slab, sizes.terms // (4 * chains)))
    loads = sizes.per_slab * width * chains
    wide = cluster and width > 1  # the loads of one step are enough for all threads
    look = (0 if wide else 1) + math.ceil(AHEAD * machine.threads / loads)
    plan = Plan(chains, width, look, 2 if cluster and not wide else 1, False, 0, before)
    plan = _predicted(plan, sizes, machine)
    aim = min(limit, int(GAIN * before))
    savings: tuple[tuple[int, dict[str, Any]], ...] = (
        (aim, {"every": 1}),
        (aim, {"width": 1, "look": 1 + math.ceil(AHEAD * machine.threads / (sizes.per_slab * chains))}),
        (limit, {"look": max(1, plan.look // 2)}),
        (limit, {"look": 1}),
        (limit, {"chains": 1}),
    )
    for bound, smaller in savings:
        if plan.peak > bound:
            plan = _predicted(replace(plan, **smaller), sizes, machine)
    if plan.peak > GAIN * before or (cluster and before < GATES_CLUSTER):
        if sizes.sums < 2 * machine.threads:
            return Missed(f"predicted peak {shown(plan.peak)}, and {shown(before)} as it is")
        levels = sizes.levels(1, width)  # all blocks are there anyway
        return Plan(1, width, look=0, every=1, lockstep=False, peak=before, before=before, levels=levels)
    return plan


def plan_alone(sizes: Sizes, machine: Machine) -> Plan | Missed:
    """Chains for sums that share nothing: each thread holds one partial sum instead of a tree of them.

    Not where there may turn out to be more threads, which would have nothing to do: on a cluster, or where
    nobody has said how many there are.
    """
    before = (machine.threads + 3 * math.ceil(math.log(sizes.terms, 4))) * sizes.accumulator
    chains = math.ceil(machine.threads / sizes.sums)
    levels = sizes.levels(chains, 1)
    peak = (chains * sizes.sums * levels + machine.threads) * sizes.accumulator
    fixed = machine.configured and machine.workers == 1
    if not fixed or sizes.sums > machine.threads or sizes.terms < 4 * chains or peak >= before:
        return Missed("no block is needed by two of these sums")
    return Plan(chains, 1, 0, 1, False, peak, before, levels)


def _predicted(plan: Plan, sizes: Sizes, machine: Machine) -> Plan:
    running = sizes.sums * plan.chains
    lockstep = machine.workers == 1 and running >= 2 * machine.threads and plan.every == 1
    levels = sizes.levels(plan.chains, plan.width)
    accumulators = (running * levels + min(running, machine.threads)) * sizes.accumulator
    blocks = sizes.held(plan.width * plan.chains, plan.look + plan.every - 2)
    copies = 2 if machine.workers > 1 else 1  # most blocks are used by several workers
    return replace(plan, lockstep=lockstep, peak=accumulators + copies * blocks, levels=levels)
