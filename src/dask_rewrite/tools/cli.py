"""The ``dask rewrite`` command: passes, options, surroundings, and what happens to a graph."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
from dataclasses import fields
from typing import Any

import click

from dask_rewrite.tools.tables import text_table


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 88})
def rewrite() -> None:
    """Look at dask_rewrite, the graph-rewriting optimizer."""


@rewrite.command()
def passes() -> None:
    """List the passes in the order in which they run."""
    from dask_rewrite.pipeline.selection import PASSES

    options = _options()
    order = PASSES if options.passes is None else options.passes
    rows = []
    for name in dict.fromkeys((*order, *PASSES)):
        runs = options.enabled and name in order and name not in options.disable
        chosen = ", ".join(f"{key}={value!r}" for key, value in _pass_options(name, options).items())
        rows.append([name, "yes" if runs else "no", _summary(name), chosen])
    _print_table(["pass", "runs", "what it does", "options"], rows)


@rewrite.command()
def config() -> None:
    """Show the options in effect, and those that differ from the defaults."""
    import dask.config
    import yaml

    from dask_rewrite.config import _DEFAULTS

    _options()  # complains about wrong values
    with open(_DEFAULTS, encoding="utf-8") as file:
        defaults = yaml.safe_load(file)["rewrite"]
    rows = []
    given = dask.config.get("rewrite", None) or {}
    for name, value in {**defaults, **{name.replace("_", "-"): given[name] for name in given}}.items():
        changed = "" if value == defaults.get(name) else f"default: {json.dumps(defaults.get(name))}"
        variable = "DASK_REWRITE__" + name.upper().replace("-", "_")
        rows.append([f"rewrite.{name}", json.dumps(value, default=str), changed, variable])
    _print_table(["option", "value", "", "environment variable"], rows)


@rewrite.command()
def info() -> None:
    """Show versions, and whether this dask lets the optimizer work on the client."""
    import platform

    import dask
    from dask._expr import Expr

    from dask_rewrite._version import __version__
    from dask_rewrite.config import OPTIMIZER_KEYS

    rows = [["dask_rewrite", __version__], ["python", platform.python_version()]]
    rows += [[name, _version(name)] for name in ("dask", "distributed", "numpy", "xarray", "dask_array")]
    rows.append(["rewrites", "on the client" if hasattr(Expr, "_tune_up") else "where dask optimizes"])
    for key in OPTIMIZER_KEYS:
        value = dask.config.get(key, None)
        rows.append([key, "dask's own" if value is None else repr(value)])
    _print_table(["", ""], rows, shown=False)


@rewrite.command()
def status() -> None:
    """Say whether the optimizer is on in this configuration, and what is in its way."""
    from dask_rewrite.tools.status import status

    _options()
    click.echo(repr(status()))


@rewrite.command()
@click.argument("target", metavar="MODULE:ATTRIBUTE")
@click.option("--nbytes", is_flag=True, help="Also measure pickled bytes.")
@click.option("--forecast", is_flag=True, help="Also say how much memory computing it takes.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--html", type=click.Path(dir_okay=False), help="Also write the report as an HTML page.")
def explain(target: str, nbytes: bool, forecast: bool, as_json: bool, html: str | None) -> None:
    """Rewrite a collection and tell what every pass did.

    ATTRIBUTE is a dask collection, a container of them, or a function without arguments that returns
    one. Nothing is computed.
    """
    from dask_rewrite.tools.explain import explain

    _options()
    report = explain(*_load(target), nbytes=nbytes, forecast=forecast)
    click.echo(report.to_json(indent=2) if as_json else repr(report))
    if html is not None:
        try:
            report.to_html(html)
        except OSError as error:
            raise click.ClickException(f"--html: {error}") from error


@rewrite.command()
@click.argument("target", metavar="MODULE:ATTRIBUTE")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of this process, or of each worker.")
@click.option("--workers", type=click.IntRange(min=0), help="Workers of a cluster; 0: this process.")
@click.option("--json", "as_json", is_flag=True, help="Print the forecast as JSON.")
def forecast(target: str, threads: int | None, workers: int | None, as_json: bool) -> None:
    """Say how much memory computing a collection takes, before it runs.

    ATTRIBUTE is a dask collection, a container of them, or a function without arguments that returns
    one. Nothing is computed.
    """
    from dask_rewrite.tools.forecast import forecast

    _options()
    found = forecast(*_load(target), threads=threads, workers=workers)
    click.echo(json.dumps(found.to_dict(), indent=2) if as_json else repr(found))


@rewrite.command()
@click.argument("target", metavar="MODULE:ATTRIBUTE")
def preflight(target: str) -> None:
    """Find what cannot be sent to a cluster, and what is heavy; fails if something cannot be sent.

    ATTRIBUTE is a dask collection, a container of them, or a function without arguments that returns
    one. Nothing is computed.
    """
    from dask_rewrite.tools.preflight import preflight

    report = preflight(*_load(target))
    click.echo(repr(report))
    if not report.ok:
        sys.exit(1)


def _options() -> Any:
    from dask_rewrite.config import Options
    from dask_rewrite.pipeline.selection import select

    try:
        options = Options.current()
        select(options)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    return options


def _implementation(name: str) -> Any:
    """The class of a pass: it carries the documentation and the options."""
    from dask_rewrite.lowering.fusion import FuseBlockwise
    from dask_rewrite.pipeline import selection

    if name == FuseBlockwise.name:
        return FuseBlockwise()
    if name in selection.TASK_PASSES:
        made = selection.TASK_PASSES[name]()
        rules: Any = getattr(made, "rules", None)
        return rules[0] if rules and len(rules) == 1 else made
    return None


_LAYER_PASSES = {
    "cull": "Drop what no output needs.",
    "fuse-blockwise": "Compute towers of Blockwise layers in one task per block.",
    "lower": "Make tasks of layers, following aliases.",
    "unnest": "Take apart tasks that are nested too deep.",
}


def _summary(name: str) -> str:
    if name in _LAYER_PASSES:
        return _LAYER_PASSES[name]
    return (_implementation(name).__doc__ or "").strip().split("\n")[0].replace("`", "")


def _pass_options(name: str, options: Any) -> dict[str, Any]:
    made = _implementation(name)
    names = [field.name for field in fields(made)] if made is not None else []
    values = {field.replace("_", "-"): getattr(made, field) for field in names if field != "rules"}
    for field in ("name", "reassociate"):  # the latter has an option of its own, for all passes
        values.pop(field, None)
    return {**values, **options.options.get(name, {})}


def _load(target: str) -> list[Any]:
    """The collections that ``module:attribute`` names."""
    from dask.base import unpack_collections

    module_name, colon, attribute = target.partition(":")
    if not colon or not module_name or not attribute:
        raise click.BadParameter(f"expected MODULE:ATTRIBUTE, got {target!r}")
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does
    try:
        value: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # something that the module itself imports
        raise click.ClickException(f"no module named {module_name!r}") from error
    for name in attribute.split("."):
        if not hasattr(value, name):
            raise click.ClickException(f"{module_name!r} has no attribute {attribute!r}")
        value = getattr(value, name)
    found, _ = unpack_collections(value)
    if not found and callable(value):
        try:
            inspect.signature(value).bind()
        except TypeError as error:
            raise click.ClickException(f"{target} is called without arguments: {error}") from error
        found, _ = unpack_collections(value())
    if not found:
        raise click.ClickException(f"{target} is not, and does not return, a dask collection")
    return list(found)


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package.replace("_", "-"))
    except PackageNotFoundError:
        return "not installed"


def _print_table(header: list[str], rows: list[list[str]], *, shown: bool = True) -> None:
    lines = text_table(header, rows, left=range(len(header)))
    click.echo("\n".join(lines if shown else lines[2:]))
