"""The ``dask rewrite`` command."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

import dask
import pytest

import dask_rewrite

click_testing = pytest.importorskip("click.testing")

from dask_rewrite.tools.cli import rewrite  # noqa: E402  # after what may be missing


def run(*arguments: str, fails: bool = False) -> str:
    result = click_testing.CliRunner().invoke(rewrite, list(arguments))
    if fails:
        assert result.exit_code, result.output
    else:
        assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.fixture
def script(tmp_path, monkeypatch) -> Iterator[Any]:
    """Write a module into the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    names = []

    def write(source: str, name: str = "job_of_user") -> None:
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
        names.append(name)

    yield write
    for name in names:
        sys.modules.pop(name, None)


SOURCE = """
    import threading
    import dask
    import dask.array as da

    x = da.ones((20, 20), chunks=2)
    several = {"a": [x + 1, x.sum()], "b": 3}
    number = 3

    def build():
        return (x + 1)[:4]

    def nothing():
        return 3

    def wants(more):
        return x + more

    def boom():
        raise LookupError("in the user's code")

    class Holder:
        x = x

    lock = threading.Lock()
    locked = dask.delayed(print)(lock)
    """


def test_registered_with_dask():
    found = entry_points(group="dask_cli", name="rewrite")
    if not found:
        pytest.skip("dask_rewrite is on the path, but not installed")
    (entry,) = found
    assert entry.value == "dask_rewrite.tools.cli:rewrite"


def test_help_lists_the_commands():
    output = run("--help")
    for command in ("passes", "config", "info", "explain", "forecast", "preflight"):
        assert command in output
        assert "Usage" in run(command, "-h")


def test_passes():
    from dask_rewrite.pipeline.selection import PASSES

    lines = run("passes").splitlines()[2:]
    assert [line.split()[0] for line in lines] == list(PASSES)
    assert all(line.split()[1] == "yes" for line in lines)
    assert all(len(line.split()) > 3 for line in lines)


def test_passes_that_do_not_run():
    with dask.config.set({"rewrite.disable": ["fuse-chains"]}):
        rows = {line.split()[0]: line.split()[1] for line in run("passes").splitlines()[2:]}
    assert rows.pop("fuse-chains") == "no"
    assert set(rows.values()) == {"yes"}
    with dask.config.set({"rewrite.enabled": False}):
        assert " yes " not in run("passes")


def test_passes_in_another_order_and_with_options():
    order = ["cull", "lower", "sweep", "fuse-chains"]
    with dask.config.set({"rewrite.passes": order, "rewrite.options": {"fuse-chains": {"max-length": 5}}}):
        lines = run("passes").splitlines()[2:]
    assert [line.split()[0] for line in lines][:4] == order
    assert [line.split()[1] for line in lines][:5] == ["yes"] * 4 + ["no"]
    assert "max-length=5" in lines[3]


@pytest.mark.parametrize("command", ["passes", "config"])
@pytest.mark.parametrize(
    ("option", "value"), [("verify", "sometimes"), ("disable", ["no-such-pass"]), ("no-such-option", 1)]
)
def test_wrong_options_are_named(command, option, value):
    with dask.config.set({f"rewrite.{option}": value}):
        output = run(command, fails=True)
        assert output.startswith("Error: ")
        assert f"rewrite.{option}" in output


def test_config():
    with dask.config.set({"rewrite.verify": "each"}):
        lines = {line.split()[0]: line for line in run("config").splitlines()[2:]}
    assert set(lines) == {f"rewrite.{name}" for name in dask.config.get("rewrite")}
    assert '"each"' in lines["rewrite.verify"]
    assert 'default: "end"' in lines["rewrite.verify"]
    assert lines["rewrite.verify"].endswith("DASK_REWRITE__VERIFY")
    assert lines["rewrite.bisect-limit"].endswith("DASK_REWRITE__BISECT_LIMIT")
    assert "default" not in lines["rewrite.reassociate"]


def test_info():
    rows = dict(line.split(maxsplit=1) for line in run("info").splitlines())
    assert rows["dask_rewrite"] == dask_rewrite.__version__
    assert rows["dask"] == dask.__version__
    assert rows["rewrites"] == "on the client"
    assert rows["array_optimize"] == "dask's own"
    with dask_rewrite.enable():
        assert "dask_rewrite" in run("info").split("array_optimize")[1]


@pytest.mark.parametrize("attribute", ["x", "build", "several", "Holder.x"])
def test_explain(script, attribute):
    script(SOURCE)
    output = run("explain", f"job_of_user:{attribute}")
    assert output.startswith("dask_rewrite: ")
    assert "total" in output


def test_explain_with_bytes_as_json(script):
    script(SOURCE)
    data = json.loads(run("explain", "job_of_user:build", "--nbytes", "--json"))
    assert data["before"]["nbytes"] > 0
    assert data["after"]["tasks"] > 0


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("job_of_user", "expected MODULE:ATTRIBUTE"),
        (":x", "expected MODULE:ATTRIBUTE"),
        ("job_of_user:", "expected MODULE:ATTRIBUTE"),
        ("no_such_module_at_all:x", "no module named 'no_such_module_at_all'"),
        ("job_of_user.inner:x", "no module named 'job_of_user.inner'"),
        ("job_of_user:y", "'job_of_user' has no attribute 'y'"),
        ("job_of_user:Holder.y", "'job_of_user' has no attribute 'Holder.y'"),
        ("job_of_user:number", "is not, and does not return, a dask collection"),
        ("job_of_user:nothing", "is not, and does not return, a dask collection"),
        ("job_of_user:wants", "is called without arguments: missing a required argument: 'more'"),
    ],
)
@pytest.mark.parametrize("command", ["explain", "preflight"])
def test_wrong_targets(script, command, target, message):
    script(SOURCE)
    output = run(command, target, fails=True)
    assert message in output
    assert "Traceback" not in output


def test_errors_of_the_users_code_are_not_hidden(script):
    script(SOURCE)
    result = click_testing.CliRunner().invoke(rewrite, ["explain", "job_of_user:boom"])
    assert isinstance(result.exception, LookupError)
    script("import missing_dependency_of_user", "broken_job")
    result = click_testing.CliRunner().invoke(rewrite, ["explain", "broken_job:x"])
    assert isinstance(result.exception, ModuleNotFoundError)


def test_preflight(script):
    script(SOURCE)
    assert "all of it pickles" in run("preflight", "job_of_user:x")
    output = run("preflight", "job_of_user:locked", fails=True)
    assert "_thread.lock" in output


def test_forecast(script):
    script(SOURCE)
    assert "held on 3 threads" in run("forecast", "job_of_user:x", "--threads", "3")
    found = json.loads(run("forecast", "job_of_user:build", "--workers", "2", "--json"))
    assert (found["workers"], found["threads"]) == (2, 1)
    assert found["after"]["peak"] > 0
    assert "forecast" in run("explain", "job_of_user:x", "--forecast")
    assert "Invalid value" in run("forecast", "job_of_user:x", "--threads", "0", fails=True)
