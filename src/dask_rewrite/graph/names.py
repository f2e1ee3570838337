"""Names of inner tasks: the original name, marked by what was rewritten together.

An inner key keeps its readable name and gets a mark, a hash over the *original* names of all layers
of the graph and over what was asked of it. Original names carry identity, so two impure tasks stay
two; the same graph gets the same names in every process; and one name never stands for two different
tasks on a scheduler, whether they come from dask's own optimizer or from another graph that shares
some layers with this one. Keys that somebody asked for are never renamed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from dask.typing import Key

MARK = "-r"
LENGTH = 8


def fingerprint(parts: Iterable[object]) -> str:
    """Eight hexadecimal digits over the parts, the same in every process.

    Examples
    --------
    >>> fingerprint(["sum-1234", ("x", 0)])
    'b8f312b4'
    """
    digest = hashlib.blake2b(digest_size=LENGTH // 2)
    for part in parts:
        data = (part if isinstance(part, str) else repr(part)).encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def mark(name: str, token: str) -> str:
    """The name with the mark of this rewrite; what looks like an earlier mark becomes part of it.

    Names that differ before differ afterwards, and do not grow when they are marked again.

    Examples
    --------
    >>> mark("sum-1234", "00c0ffee")
    'sum-1234-r00c0ffee'
    >>> mark("sim-r20240101", "00c0ffee") == mark("sim-r20240102", "00c0ffee")
    False
    """
    at = len(name) - LENGTH - len(MARK)
    if at > 0 and name[at : at + len(MARK)] == MARK:
        token = fingerprint([token, name[at:]])
        name = name[:at]
    return f"{name}{MARK}{token}"


def unmarked(name: str) -> str:
    """The name without the mark of a rewrite, if it has one.

    Examples
    --------
    >>> unmarked("sum-1234-r00c0ffee"), unmarked("sum-1234")
    ('sum-1234', 'sum-1234')
    """
    at = len(name) - LENGTH - len(MARK)
    return name[:at] if at > 0 and name[at : at + len(MARK)] == MARK else name


def layer_name(key: Key) -> Any:
    """The layer that a key belongs to by its name; a block's is that of its array.

    Examples
    --------
    >>> layer_name(("x", 0, 1)), layer_name("total")
    ('x', 'total')
    """
    return key[0] if type(key) is tuple and key else key
