"""What modules keep between calls: all of it is listed, and bounded."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dask_rewrite.graph import kinds

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.once

PLANTED = """
from collections import deque
from functools import cache
seen = {}
last = None
late = deque()
constant = {1: 2}

class Table(dict): ...

table: Table = Table()

@cache
def slow(): ...

def remember(value, own):
    global last
    last = seen[value] = value
    own[value] = constant[1]
    constant = [0]
    constant.append(1)
"""


@pytest.fixture
def module_state(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("module_state", ROOT / ".ci/module_state.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "module_state", module)
    spec.loader.exec_module(module)
    return module


def test_the_list_is_complete(module_state):
    assert module_state.found(ROOT / "src/dask_rewrite") == module_state.STATE.keys()


def test_new_state_is_found(module_state, tmp_path):
    (tmp_path / "planted.py").write_text(PLANTED, encoding="utf-8")
    (tmp_path / "user.py").write_text("from planted import seen\ndef f(): seen.clear()\n", encoding="utf-8")
    names = {"seen", "last", "late", "table", "slow"}
    assert module_state.found(tmp_path) == {f"planted.py {name}" for name in names}


def test_kinds_of_types_are_bounded(monkeypatch):
    monkeypatch.setattr(kinds, "MOST", 2)
    found = kinds.Kinds()
    assert [found[kind] for kind in (int, str, float, bytes)] == [kinds.RAW] * 4
    assert len(found) == 2
