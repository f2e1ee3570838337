"""Names of inner tasks: the original name, marked by what was rewritten together.

An inner key keeps its readable name and gets a mark, a hash over the *original* names of all layers
of the graph and over what was asked of it. Original names carry identity, so two impure tasks stay
two; the same graph gets the same names in every process; and one name never stands for two different
tasks on a scheduler, whether they come from dask's own optimizer or from another graph that shares
some layers with this one. Keys that somebody asked for are never renamed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import Any

from dask.typing import Key
from dask.utils import key_split

MARK = "-r"
LENGTH = 8
#: Ends the words of a compound name; how many members it shows, and how much of each.
_END, _MEMBERS, _WIDTH = "--", 5, 20
#: What dask takes for a hash: a word of eight letters that starts with one of these.
_HEX = "abcdef"
#: Between the names of tasks whose results one task gives.
JOINED = "+"


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


def carrying(held: Iterable[Key]) -> str:
    """The mark of tasks that wait for nothing but what they carry, which has keys of its own.

    Unlike that of a whole rewrite it can be told from the task, and so whose block it makes.

    Examples
    --------
    >>> carrying(["hoist-1", "hoist-2"]) == carrying(["hoist-2", "hoist-1"])
    True
    """
    return fingerprint(["carrying", *sorted(map(str, held))])


def marked(key: Key, token: str) -> Key:
    """The key of a block or of a task under the mark of this rewrite.

    Examples
    --------
    >>> marked(("sum-1234", 0), "00c0ffee"), marked("total", "00c0ffee")
    (('sum-1234-r00c0ffee', 0), 'total-r00c0ffee')
    """
    if type(key) is tuple:
        return (mark(str(key[0]), token), *key[1:])
    return mark(str(key), token)


def unmarked(name: str) -> str:
    """The name without the mark of a rewrite and what :func:`compound` put before it, if it has a mark.

    Examples
    --------
    >>> unmarked("sum-1234-r00c0ffee"), unmarked("sum-1234")
    ('sum-1234', 'sum-1234')
    """
    at = len(name) - LENGTH - len(MARK)
    return name[:at].rpartition(_END)[2] if at > 0 and name[at : at + len(MARK)] == MARK else name


def compound(members: Iterable[str], name: str) -> str:
    """A name that shows what is fused: the words of the first few members, producers first, and of the last.

    Dashboards show the words and give each row of words a colour; blocks of the same layers have the same.

    Examples
    --------
    >>> compound(["load-1", "scale-2", "load-3", "mean_chunk-4"], "mean_chunk-4-r00c0ffee")
    'load-scale-mean-chunk--mean_chunk-4-r00c0ffee'
    >>> unmarked("load-scale-mean-chunk--mean_chunk-4-r00c0ffee")
    'mean_chunk-4'
    """
    if _END in name:  # rewritten again: names do not grow
        return name
    last = _word(name.partition("-")[0])
    words = dict.fromkeys([_word(member.partition("-")[0]) for member in islice(members, _MEMBERS)])
    words.pop(last, None)
    return f"{'-'.join([*words, last])}{_END}{name}"


@lru_cache(maxsize=1024)
def _word(text: str) -> str:
    """Letters that dask takes for a part of a readable name, not for a hash."""
    words = re.sub("[^A-Za-z]+", " ", text[:_WIDTH]).split() or ["x"]
    return "-".join([word.capitalize() if len(word) == 8 and word[0] in _HEX else word for word in words])


def layer_name(key: Key) -> Any:
    """The layer that a key belongs to by its name; a block's is that of its array.

    Examples
    --------
    >>> layer_name(("x", 0, 1)), layer_name("total")
    ('x', 'total')
    """
    return key[0] if type(key) is tuple and key else key


def kind_name(key: Key) -> str:
    """What people call a task: the name of its array without the token, or the text.

    >>> kind_name(("sum-aggregate-0123456789abcdef0123456789abcdef", 0)), kind_name("total")
    ('sum-aggregate', 'total')
    """
    return str(key_split(layer_name(key)))


def is_finalize(key: object) -> bool:
    """Whether a task makes one result of the blocks of a collection, by its key or the name of its layer.

    Examples
    --------
    >>> is_finalize("finalize-hlgfinalizecompute-1"), is_finalize(("x", 0))
    (True, False)
    """
    return type(key) is str and key.startswith("finalize")
