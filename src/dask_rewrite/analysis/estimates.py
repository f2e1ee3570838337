"""How large blocks probably are: for decisions that only cost time or memory, never a proof."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from dask.typing import Key

from dask_rewrite.analysis.declared import Declared
from dask_rewrite.analysis.facts import Fact, Facts


class Estimate(NamedTuple):
    """How large a block probably is: elements, and bytes."""

    size: int
    nbytes: int


def estimate(facts: Facts, key: Key) -> Estimate | Fact | None:
    """How large a block is, from facts where there are any and from declarations where not."""
    return believed(facts, key) or of_parts(facts, key)


def likely_bytes(facts: Facts, key: Key) -> int:
    """Bytes that a block probably has, 0 if nobody knows."""
    size = estimate(facts, key)
    return 0 if size is None else size.nbytes


def of_parts(facts: Facts, key: Key) -> Estimate | None:
    """How large several arrays are together, None if it is one: declarations take them for one block."""
    said = None if facts.declared is None else facts.declared.belief_of_list(key)
    parts = _parts(facts.value(key) if said is None else said)
    if not parts or not all(type(part) is Fact for part in parts):
        return None
    return Estimate(sum([part.size for part in parts]), sum([part.nbytes for part in parts]))


def _parts(value: Any) -> list[Any]:
    """Blocks: means and moments pass dicts of them from one step to the next, and several go in a list."""
    if type(value) is dict:
        return list(value.values())
    if type(value) is not list:
        return []
    return list(chain.from_iterable([_parts(each) if type(each) is dict else [each] for each in value]))


def believed(facts: Facts, key: Key) -> Fact | None:
    """What a block probably is, from facts where there are any and from declarations where not.

    A block that is declared is not looked into for its facts: for an estimate what is said is good enough.
    """
    found = facts.found(key)
    if type(found) is not Fact:
        found = None if facts.declared is None else facts.declared.belief(key)
    return found or beliefs_of(facts).of(key)


def beliefs_of(facts: Facts) -> Facts:
    """Facts that take declarations for true, to estimate what expressions over such blocks give."""
    if facts.declared is None:
        return facts
    if facts.beliefs is None:
        said, guess = partial(_said, facts, facts.declared), partial(_guess, facts.declared)
        facts.beliefs = Facts(facts.lookup, guess, evaluator=facts.evaluator, said=said)
    facts.beliefs.lookup = facts.lookup
    return facts.beliefs


def _said(proven: Facts, declared: Declared, key: Key) -> Any:
    """What is said of a block, or of a list of them, unless one may be a dict of several."""
    found = proven.found(key)
    if found is None:
        found = declared.belief(key, trusted=True)
    return declared.belief_of_list(key, trusted=True) if found is None else found


def _guess(declared: Declared, key: Key) -> Any:
    found = declared.belief(key)
    return declared.belief_of_list(key) if found is None else found
