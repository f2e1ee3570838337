"""Configuration, as dask's users know it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import yaml

import dask_rewrite
from dask_rewrite.config import Options
from dask_rewrite.pipeline import selection
from dask_rewrite.pipeline.selection import TASK_PASSES, select
from helpers import assert_same, distinct, switched_on, tasks_of, unchanged_config

PACKAGE = Path(dask_rewrite.__file__).parent
PASSES = list(selection.PASSES)
OPTIONAL = [name for name in PASSES if name not in ("cull", "lower")]
DEFAULTS = yaml.safe_load((PACKAGE / "rewrite.yaml").read_text("utf-8"))["rewrite"]
SCHEMA = yaml.safe_load((PACKAGE / "rewrite-schema.yaml").read_text("utf-8"))["properties"]["rewrite"]


def passes_and_rules() -> Iterator[Any]:
    selection = select(Options())
    for made in (selection.fusion, *selection.passes):
        yield from getattr(made, "rules", (made,))


def program() -> da.Array:
    return (distinct((4, 4), 2) + 1).T * 2


VALUE = (np.arange(16.0).reshape(4, 4) + 1).T * 2


def test_defaults_are_registered_with_dask() -> None:
    assert any("rewrite" in defaults for defaults in dask.config.defaults)
    dask.config.refresh()
    for name, value in DEFAULTS.items():
        assert dask.config.get(f"rewrite.{name}") == value


def test_the_schema_describes_every_option() -> None:
    assert set(SCHEMA["properties"]) == set(DEFAULTS)
    for name, about in SCHEMA["properties"].items():
        assert about.get("description"), name


def test_the_defaults_obey_the_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(DEFAULTS, SCHEMA)


def test_underscores_and_hyphens_are_the_same() -> None:
    with dask.config.set({"rewrite.on_error": "raise"}):
        assert dask.config.get("rewrite.on-error") == "raise"
    with dask.config.set({"rewrite.lower_limit": 7}):
        assert_same(dask_rewrite.optimize(program()).compute(), VALUE)


def test_a_users_yaml_file(python: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("rewrite:\n  verify: off\n  disable: [fuse-chains]\n")
    out = python(
        """
        import dask, dask_rewrite, dask.array as da
        print(dask.config.get("rewrite.disable"), dask.config.get("rewrite.on-error"))
        print(int(dask_rewrite.optimize(da.arange(6, chunks=2).sum()).compute(scheduler="sync")))
        """,
        DASK_CONFIG=str(tmp_path),
    )
    assert out.split() == ["['fuse-chains']", "warn", "15"]


def test_the_environment(python: Any) -> None:
    out = python(
        """
        import dask, dask_rewrite, dask.array as da
        print(dask.config.get("rewrite.disable"), dask.config.get("rewrite.enabled"))
        print(int(dask_rewrite.optimize(da.arange(6, chunks=2).sum()).compute(scheduler="sync")))
        """,
        DASK_REWRITE__DISABLE="['fuse-chains', 'sweep']",
        DASK_REWRITE__VERIFY="off",
        DASK_REWRITE__ENABLED="True",
    )
    assert out.split() == ["['fuse-chains',", "'sweep']", "True", "15"]


# --------------------------------------------------------------------------------------
# wrong values say what is wrong


def test_where_the_section_is_missing_there_are_defaults() -> None:
    with unchanged_config():
        for section in (None, {}, {"verify": "each"}, {"contraction": {}}, {"options": {"contract": {}}}):
            dask.config.config["rewrite"] = section
            with switched_on():
                assert_same(program().compute(), VALUE)
            assert dask_rewrite.explain(program()).form == "tasks"
        dask.config.config.clear()
        assert Options.current() == Options()
        with switched_on():
            assert_same(program().compute(scheduler="sync"), VALUE)


def test_the_defaults_are_those_of_the_file() -> None:
    with dask.config.set(rewrite=DEFAULTS):
        assert Options.current() == Options()


def test_options_that_are_equal_but_not_the_same_are_told_apart() -> None:
    with dask.config.set({"rewrite.reassociate": False}):
        assert Options.current().reassociate is False
    with dask.config.set({"rewrite.reassociate": 0}), pytest.raises(ValueError, match="reassociate"):
        Options.current()
    with dask.config.set({"rewrite.bisect-limit": 1}):
        assert Options.current().bisect_limit == 1
    with dask.config.set({"rewrite.bisect-limit": True}), pytest.raises(ValueError, match="bisect-limit"):
        Options.current()


def test_options_do_not_follow_the_mapping_that_they_were_read_from() -> None:
    given = {"fuse-chains": {"max-length": 5}}
    with dask.config.set({"rewrite.options": given}):
        options = Options.current()
        given["fuse-chains"]["max-length"] = 6
        assert options.options == {"fuse-chains": {"max-length": 5}}
        assert Options.current().options == {"fuse-chains": {"max-length": 6}}


def test_threads_read_their_own_options(monkeypatch: pytest.MonkeyPatch) -> None:
    # What was read and what came of it are remembered as one, or another thread gets in between.
    wrong: list[int] = []
    here = threading.local()
    monkeypatch.setattr(dask.config, "get", lambda *args, **kwargs: here.section)

    def read(limit: int) -> None:
        here.section = {"lower-limit": limit}
        wrong.extend([limit for _ in range(20_000) if Options.current().lower_limit != limit])

    threads = [threading.Thread(target=read, args=[limit]) for limit in (1, 2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rewrite.contraction": {1: 2}}, r"rewrite\.contraction\.1: no such option"),
        ({"rewrite.contraction": {"memory-limit": float("inf")}}, r"rewrite\.contraction\.memory-limit"),
        (
            {"rewrite.options": {"fuse-chains": {1: 2}}},
            r"rewrite\.options\.fuse-chains: expected names of options",
        ),
        ({"rewrite": {1: 2}}, r"rewrite\.1: no such option"),
        ({"rewrite": 1}, r"rewrite: expected a mapping"),
        ({"rewrite.lower-seconds": float("nan")}, r"rewrite\.lower-seconds: expected a number"),
        ({"rewrite.verify": lambda: "end"}, r"rewrite\.verify: expected one of"),
    ],
)
def test_wrong_values_of_all_kinds_name_their_option(given: Any, message: str) -> None:
    with dask.config.set(given), pytest.raises(ValueError, match=message):
        dask_rewrite.optimize(program())


NUMBERS = [
    (made.name, name.replace("_", "-"))
    for made in passes_and_rules()
    for name in made.__dataclass_fields__
    if type(getattr(made, name)) is int
]


@pytest.mark.once
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize(("name", "option"), NUMBERS)
def test_small_numbers_are_fine_for_every_option(name: str, option: str, number: int) -> None:
    x = distinct((6, 6), 2)
    programs = [program(), x @ x.T, (x + x.T).sum(axis=0), da.pad(x, 1, mode="edge")[::2], x.rechunk(3) + 1]
    sources = [distinct((4,), 4) + i for i in range(5)]
    programs.append(da.map_blocks(lambda *blocks: sum(blocks), *sources, dtype=float) * 2 - 1)
    expected = dask.compute(*programs, optimize_graph=False)
    for passes in (None, ["lower", name] if name in TASK_PASSES else None):
        with dask.config.set({"rewrite.passes": passes, "rewrite.options": {name: {option: number}}}):
            for each, value in zip(programs, expected, strict=True):
                assert_same(dask_rewrite.optimize(each).compute(), value)


WRONG = {
    "rewrite.verify": "sometimes",
    "rewrite.on-error": "ignore",
    "rewrite.annotations": "some",
    "rewrite.passes": ["lower", "no-such-pass"],
    "rewrite.disable": ["no-such-pass"],
    "rewrite.options": {"no-such-pass": {"fan-in": 3}},
    "rewrite.lower-limit": "many",
    "rewrite.lower-seconds": "long",
    "rewrite.bisect-limit": "x",
    "rewrite.remarks": ["everything"],
    "rewrite.enabled": "perhaps",
    "rewrite.reassociate": "perhaps",
}


@pytest.mark.parametrize("option", WRONG)
def test_a_wrong_value_names_the_option(option: str) -> None:
    with (
        dask.config.set({option: WRONG[option]}),
        pytest.raises((ValueError, TypeError), match=option.partition(".")[2]),
    ):
        dask_rewrite.optimize(program())


@pytest.mark.parametrize("option", WRONG)
def test_a_wrong_value_is_an_error_also_within_compute(option: str) -> None:
    # The user's mistake is not a failing pass: it is not swallowed.
    with (
        dask.config.set({"rewrite.on-error": "warn", option: WRONG[option]}),
        switched_on(),
        pytest.raises((ValueError, TypeError), match=option.partition(".")[2]),
    ):
        program().compute()


def test_an_unknown_pass_is_named() -> None:
    with (
        dask.config.set({"rewrite.disable": ["no-such-pass"]}),
        pytest.raises(ValueError, match="no-such-pass"),
    ):
        dask_rewrite.optimize(program())


def test_an_unknown_option_is_named() -> None:
    with dask.config.set({"rewrite.no-such-option": 1}), pytest.raises(ValueError, match="no-such-option"):
        dask_rewrite.optimize(program())


def test_an_unknown_option_of_a_pass_is_named() -> None:
    with (
        dask.config.set({"rewrite.options": {"fuse-chains": {"no-such-option": 1}}}),
        pytest.raises((ValueError, TypeError), match=r"no.such.option"),
    ):
        dask_rewrite.optimize(program())


# --------------------------------------------------------------------------------------
# passes


def names_of_steps() -> list[str]:
    return [step.name for step in dask_rewrite.explain(program()).steps]


def test_the_passes_are_reported_in_order() -> None:
    names = names_of_steps()
    known = [name for name in names if name in PASSES]
    assert known == sorted(known, key=PASSES.index)
    assert "lower" in names


def test_the_passes_of_the_foundation_are_there() -> None:
    assert {"cull", "fuse-blockwise", "lower", "fuse-slices", "fuse-chains", "sweep"} <= set(PASSES)


@pytest.mark.parametrize("name", OPTIONAL)
def test_each_pass_can_be_disabled(name: str) -> None:
    with dask.config.set({"rewrite.disable": [name]}):
        assert name not in names_of_steps()
        assert_same(dask_rewrite.optimize(program()).compute(), VALUE)


@pytest.mark.parametrize("name", ["cull", "lower"])
def test_what_cannot_be_disabled_says_so(name: str) -> None:
    with (
        dask.config.set({"rewrite.disable": [name]}),
        pytest.raises(ValueError, match=f"{name}.*cannot be disabled"),
    ):
        dask_rewrite.optimize(program())


def test_all_passes_disabled() -> None:
    with dask.config.set({"rewrite.disable": OPTIONAL}):
        assert_same(dask_rewrite.optimize(program()).compute(), VALUE)


@pytest.mark.parametrize(
    "passes",
    [[], ["lower"], ["cull", "lower"], ["lower", "sweep"], ["fuse-blockwise", "lower", "fuse-chains"]],
)
def test_a_list_of_passes(passes: list[str]) -> None:
    with dask.config.set({"rewrite.passes": passes}):
        assert_same(dask_rewrite.optimize(program()).compute(), VALUE)
        with switched_on():
            assert_same(program().compute(), VALUE)


def test_a_list_of_passes_has_its_order() -> None:
    with dask.config.set({"rewrite.passes": ["fuse-blockwise", "lower", "sweep", "fuse-chains"]}):
        names = [name for name in names_of_steps() if name in ("sweep", "fuse-chains")]
        assert names == ["sweep", "fuse-chains"]


def test_options_of_passes_do_something() -> None:
    with dask.config.set({"rewrite.options": {name: {} for name in PASSES}}):
        assert_same(dask_rewrite.optimize(program()).compute(), VALUE)
    parts = [distinct((4,), 2) for _ in range(12)]
    total = sum((part * i for i, part in enumerate(parts[1:], 2)), start=parts[0] + np.pi)
    with dask.config.set({"rewrite.options": {"fuse-blockwise": {"max-loads": 2, "max-inputs": 2}}}):
        narrow = tasks_of(total)
        assert_same(dask_rewrite.optimize(total).compute(), total.compute())
    assert len(narrow) >= len(tasks_of(total))


def test_disabled_altogether(rewrites: Any) -> None:
    with dask.config.set({"rewrite.enabled": False}):
        with switched_on():
            assert_same(program().compute(), VALUE)
        assert_same(dask_rewrite.optimize(program()).compute(), VALUE)
    assert len(rewrites) == 0


def test_a_bisect_limit_of_nothing_is_still_right() -> None:
    for limit in (0, 1, 2, 3, 10):
        with dask.config.set({"rewrite.bisect-limit": limit}):
            assert_same(dask_rewrite.optimize(program()).compute(), VALUE)


def test_print_after_prints(capsys: Any) -> None:
    with dask.config.set({"rewrite.print-after": ["lower"]}):
        dask_rewrite.optimize(program())
    out, err = capsys.readouterr()
    assert "lower" in out + err


def test_remarks_go_to_the_log(caplog: Any) -> None:
    with caplog.at_level("INFO", logger="dask_rewrite"):
        with dask.config.set({"rewrite.remarks": ["applied", "missed", "failed"]}):
            dask_rewrite.optimize(program())
        assert caplog.records
        caplog.clear()
        dask_rewrite.optimize(program())
        assert not caplog.records


# --------------------------------------------------------------------------------------
# dask's own options


def delayed_chain() -> Any:
    x = dask.delayed(abs)(-1)
    for _ in range(5):
        x = dask.delayed(abs)(x)
    return x


def test_fusion_is_switched_off_by_dasks_own_option() -> None:
    x = distinct((8, 8), 4)
    y = ((x + 1) * 2)[1:5].sum()
    # layers are fused while they are lowered, which is one step
    fusion = {"inline-sources", "fuse-small", "crumbs", "siblings", "fuse-chains", "coalesce"}
    with dask.config.set({"optimization.fuse.active": False}):
        report = dask_rewrite.explain(y)
        assert fusion.isdisjoint(step.name for step in report.steps)
        assert "fuse-slices" in {step.name for step in report.steps}
        apart = tasks_of(y)
        assert_same(dask_rewrite.optimize(y).compute(), y.compute(optimize_graph=False))
        with switched_on():
            assert_same(y.compute(), y.compute(optimize_graph=False))
    assert len(apart) >= 4 * 4  # four blocks: cut, add, multiply, sum
    for active in (None, True, 0):  # null is dask's default, and only false is off
        with dask.config.set({"optimization.fuse.active": active}):
            assert fusion <= {step.name for step in dask_rewrite.explain(y).steps}
            assert len(tasks_of(y)) < len(apart)


@pytest.mark.parametrize("active", [None, False])
@pytest.mark.parametrize("fuse", [False, True])
def test_explain_fuses_delayed_objects_as_computing_does(fuse: bool, active: bool | None) -> None:
    x = delayed_chain()
    with dask.config.set({"optimization.fuse.delayed": fuse, "optimization.fuse.active": active}):
        after = dask_rewrite.explain(x).after
        assert after is not None
        assert after.tasks == len(tasks_of(x)) == (1 if fuse and active is None else 6)
        sent = dask_rewrite.optimize(x)
        assert len(dict(sent.__dask_graph__())) == after.tasks
        assert sent.compute() == 1
