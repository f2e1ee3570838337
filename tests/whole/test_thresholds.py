"""Answers are right on both sides of the code's thresholds; `python dev.py thresholds` tries each of them."""

from __future__ import annotations

import pytest

from thresholds import DIVISORS, NO_THRESHOLDS, SOURCE, mixed, outcome, thresholds

pytest.importorskip("h5py")
pytestmark = pytest.mark.once


@pytest.mark.parametrize("seed", range(3))
def test_half_of_the_thresholds_are_crossed(seed: int) -> None:
    assert outcome(mixed(seed), examples=10, seconds=280) == ""


def test_each_is_crossed_in_one_draw_or_another() -> None:
    drawn = {setting.partition("=")[0] for seed in range(12) for setting in mixed(seed)}
    assert drawn == set(thresholds())


def test_thresholds_are_found() -> None:
    found = thresholds()
    assert found["lowering/resolve.py:DEPTH_LIMIT"] == 32
    assert found["passes/setitem/__init__.py:ROOM"] == 2**20
    assert set(found) >= DIVISORS
    for place in NO_THRESHOLDS:
        file, name = place.split(":")
        assert f"\n{name} = " in (SOURCE / file).read_text()


def test_a_wrong_answer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    import threshold_programs

    found = iter([(1,), (2,)])
    monkeypatch.setattr(threshold_programs, "answers", lambda _: next(found))
    with pytest.raises(AssertionError, match="of two kinds"):
        threshold_programs.compare((), "of two kinds")


def test_a_setting_that_does_not_exist_is_seen() -> None:
    assert "has no" in outcome(["passes/fuse_small.py:NOTHING=0"], examples=1)
