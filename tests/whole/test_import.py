"""Importing the package changes nothing but that dask knows the defaults of its options."""

from __future__ import annotations

from collections.abc import Callable

#: What is looked at before and after, in a fresh interpreter whose warnings are errors.
SCRIPT = """
    import copy, gc, logging, os, pathlib, signal, socket, sys, threading, warnings
    import dask, dask.array, dask.bag, dask.blockwise, dask.delayed, dask.highlevelgraph, dask._expr
    import dask.multiprocessing, dask.threaded

    def state():
        modules = {n: dict(vars(m)) for n, m in sys.modules.items() if n.partition(".")[0] == "dask"}
        config = copy.deepcopy(dask.config.config)
        config.pop("rewrite", None)
        return {
            "what dask's modules hold": {n: {k: id(v) for k, v in d.items()} for n, d in modules.items()},
            "methods": {id(v): sorted((k, id(w)) for k, w in vars(v).items())
                        for d in modules.values() for v in d.values() if isinstance(v, type)},
            "dask's configuration": config,
            "environment": dict(os.environ),
            "folder": sorted(os.listdir()),
            "threads": threading.active_count(),
            "signals": {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)},
            "interpreter": (sys.getrecursionlimit(), gc.get_threshold(), gc.isenabled(), sys.excepthook,
                            sys.path[:], len(sys.meta_path), sys.gettrace(), sys.getprofile()),
            "warnings": warnings.filters[:],
            "logging": (logging.root.handlers[:], logging.root.level),
            "callbacks": set(dask.callbacks.Callback.active),
        }

    def refuse(*args, **kwargs):
        raise AssertionError("importing opens a connection")

    socket.socket.connect = refuse
    before, loaded = state(), set(sys.modules)
    import dask_rewrite
    after = state()
    for what, was in before.items():
        now = after[what]
        if isinstance(was, dict) and what in ("what dask's modules hold", "methods"):
            for name, held in was.items():  # what came with it, such as more of dask's modules, is new
                held, holds = dict(held), dict(now[name])
                changed = [key for key in held if held[key] != holds.get(key)]
                assert not changed, f"importing changed {changed} of {name}"
            continue
        assert was == now, f"importing changed {what}"
    new = {name.partition(".")[0] for name in set(sys.modules) - loaded}
    heavy = new & {"distributed", "xarray", "pandas", "networkx", "zarr", "h5py", "asyncio"}
    assert not heavy, heavy
    assert dask.config.get("array_optimize", None) is None
    assert not dask_rewrite.status()
    print("nothing")
"""


def test_importing_has_no_side_effects(python: Callable[..., str]) -> None:
    assert python(SCRIPT).strip() == "nothing"


def test_switching_off_leaves_nothing_behind(python: Callable[..., str]) -> None:
    compute = "    dask.array.ones(4, chunks=2).sum().compute(scheduler='sync')\n"
    switched = f"    import dask_rewrite.auto\n{compute}    dask_rewrite.disable()\n"
    start = "    before, loaded ="  # dask itself keeps what it finds out at the first computation
    script = SCRIPT.replace("    import dask_rewrite\n", switched).replace(start, compute + start)
    assert python(script).strip() == "nothing"
