"""Options under the ``rewrite`` namespace of dask's configuration."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, field, replace
from typing import Any

import dask.config
import yaml
from dask.utils import parse_bytes

#: The options read last and what they were read from, since small graphs are rewritten in less time than
#: reading them takes. Both are one value, so that no other thread sees one without the other.
_last: tuple[bytes, Options] | None = None

#: What dask's own option ``optimization.fuse.active: false`` leaves out.
FUSION = frozenset(
    {"fuse-blockwise", "inline-sources", "fuse-small", "crumbs", "siblings", "fuse-chains", "coalesce"}
)

#: What dask asks for an optimizer, by kind of collection, and the name of ours as an expression.
OPTIMIZER_KEYS = ("array_optimize", "delayed_optimize", "bag_optimize")
OPTIMIZER = "dask-rewrite-optimizer"

_DEFAULTS = os.path.join(os.path.dirname(__file__), "rewrite.yaml")


def register() -> None:
    """Make the defaults and the environment variables (``DASK_REWRITE__...``) known to dask."""
    with open(_DEFAULTS, encoding="utf-8") as file:
        defaults = yaml.safe_load(file)
    dask.config.update_defaults(defaults)


@dataclass(frozen=True, slots=True)
class Options:
    """The ``rewrite`` options at one moment, checked.

    Examples
    --------
    >>> import dask
    >>> with dask.config.set({"rewrite.verify": "each"}):
    ...     Options.current().verify
    'each'
    """

    enabled: bool = True
    passes: tuple[str, ...] | None = None
    disable: frozenset[str] = frozenset()
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    verify: str = "end"
    on_error: str = "warn"
    assume: str = "declared"
    reassociate: bool = True
    annotations: str = "keep"
    lower_limit: int = 3_000_000
    lower_seconds: float = 60.0
    bisect_limit: int = -1
    print_after: frozenset[str] = frozenset()
    remarks: frozenset[str] = frozenset()
    contraction: dict[str, int | None] = field(default_factory=lambda: {"memory-limit": None})
    memory_limit: int | None = None
    on_memory: str = "warn"
    reread: bool = False

    @classmethod
    def current(cls) -> Options:
        """Read and check the options.

        Raises
        ------
        ValueError
            Naming the option, its value and what was expected.
        """
        global _last
        raw = dask.config.get("rewrite", None)
        if raw is None:  # a program that clears or restores the whole configuration: all defaults
            raw = {}
        if not isinstance(raw, dict):
            raise ValueError(f"rewrite: expected a mapping of options, got {raw!r}")
        fuse = dask.config.get("optimization.fuse.active", None) is not False
        try:  # pickles tell 0 from false, and nobody changes them while we look
            token = pickle.dumps((raw, fuse))
        except Exception:  # no option is like that: reading it says which one
            return _read(dict(raw), fuse)
        last = _last
        if last is not None and last[0] == token:
            return last[1]
        options = _read(*pickle.loads(token))
        _last = token, options
        return options


def _read(raw: dict[Any, Any], fuse: bool) -> Options:
    values = {str(name).replace("_", "-"): value for name, value in raw.items()}
    if unknown := sorted(values.keys() - _CHECKS.keys()):
        raise ValueError(
            f"rewrite.{unknown[0]}: no such option; expected one of {', '.join(sorted(_CHECKS))}"
        )
    options = Options(
        **{name.replace("-", "_"): _CHECKS[name](name, value) for name, value in values.items()}
    )
    return options if fuse else replace(options, disable=options.disable | FUSION)


def _boolean(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"rewrite.{name}: expected true or false, got {value!r}")


def _number(name: str, value: Any, kind: type[int] | type[float], least: float) -> Any:
    whole = isinstance(value, float) and value.is_integer()  # YAML reads 1e6 as one of these
    is_number = (whole or isinstance(value, (int, kind))) and not isinstance(value, bool)
    if not is_number or not value >= least:  # nor nan
        raise ValueError(f"rewrite.{name}: expected a number of at least {least}, got {value!r}")
    return kind(value)


def _names(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(v, str) for v in value):
        return tuple(value)
    raise ValueError(f"rewrite.{name}: expected a list of names, got {value!r}")


def _choice(*allowed: str) -> Any:
    def check(name: str, value: Any) -> str:
        if value is False and "off" in allowed:  # YAML reads a bare `off` as false
            return "off"
        if isinstance(value, str) and value in allowed:
            return value
        raise ValueError(f"rewrite.{name}: expected one of {', '.join(allowed)}, got {value!r}")

    return check


def _kinds(name: str, value: Any) -> frozenset[str]:
    kinds = frozenset(_names(name, value))
    if unknown := kinds - {"applied", "missed", "failed"}:
        raise ValueError(f"rewrite.{name}: expected applied, missed or failed, got {sorted(unknown)[0]!r}")
    return kinds


def _mapping(name: str, value: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(value, dict) or not all(isinstance(v, dict) for v in value.values()):
        raise ValueError(
            f"rewrite.{name}: expected a mapping of pass names to mappings of options, got {value!r}"
        )
    for where, given in value.items():
        if wrong := [option for option in given if not isinstance(option, str)]:
            raise ValueError(f"rewrite.{name}.{where}: expected names of options, got {wrong[0]!r}")
    return {str(where).replace("_", "-"): given for where, given in value.items()}  # as in the environment


def _contraction(name: str, value: Any) -> dict[str, int | None]:
    if not isinstance(value, dict):
        raise ValueError(f"rewrite.{name}: expected a mapping of options, got {value!r}")
    given = {str(key).replace("_", "-"): option for key, option in value.items()}
    if unknown := sorted(given.keys() - {"memory-limit"}):
        raise ValueError(f"rewrite.{name}.{unknown[0]}: no such option; expected memory-limit")
    return {"memory-limit": _nbytes(f"{name}.memory-limit", given.get("memory-limit"))}


def _nbytes(name: str, limit: Any) -> int | None:
    try:
        nbytes = None if limit is None else int(parse_bytes(limit))
        blank = isinstance(limit, str) and not limit.strip()  # which dask takes for one byte
        if blank or isinstance(limit, bool) or (nbytes is not None and nbytes < 0):
            raise ValueError
    except (AttributeError, OverflowError, TypeError, ValueError):
        raise ValueError(
            f'rewrite.{name}: expected bytes, as a number or as "4 GB", or null; got {limit!r}'
        ) from None
    return nbytes


_CHECKS: dict[str, Any] = {
    "enabled": _boolean,
    "passes": lambda name, value: None if value is None else _names(name, value),
    "disable": lambda name, value: frozenset(_names(name, value)),
    "options": _mapping,
    "verify": _choice("off", "end", "each", "rule"),
    "on-error": _choice("warn", "raise"),
    "assume": _choice("declared", "proven"),
    "reassociate": _boolean,
    "annotations": _choice("keep", "drop"),
    "lower-limit": lambda name, value: _number(name, value, int, 0),
    "lower-seconds": lambda name, value: _number(name, value, float, 0),
    "bisect-limit": lambda name, value: _number(name, value, int, -1),
    "print-after": lambda name, value: frozenset(_names(name, value)),
    "remarks": _kinds,
    "contraction": _contraction,
    "memory-limit": _nbytes,
    "on-memory": _choice("warn", "raise"),
    "reread": _boolean,
}
