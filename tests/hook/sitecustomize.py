"""Only clients and workers unpickle: every other process of the tests that tries to is reported.

Python runs this file when it starts, as ``tests/conftest.py`` has put its directory on PYTHONPATH.
In a scheduler, a storage, a supervisor, a monitor or a command, whatever unpickles raises, and
writes a report for which the test fails. One unpickling is meant to be, once for each process: that
of what its parent wrote to its standard input (``read_config``).
"""

from __future__ import annotations

import os
import sys

PROGRAMS = ("scaler_cluster.cli.", "scaler_cluster.runtime.", "scaler_monitoring.")
"""The modules that such processes run begin so."""
PROXIES = ("scaler_cluster.runtime.proxy", "symphony", "aws_hpc")
"""In the command lines of proxies: all of their workers are in their process."""


def is_watched(command: list[str]) -> bool:
    """Return True if a command line starts what must not unpickle."""
    first, rest = [*command, "", ""][1:3]
    if rest in PROXIES or os.path.basename(first) == "scaler_symphony_cluster":
        return False
    if first == "-m":
        return rest.startswith(PROGRAMS)
    if first == "-c":
        return "import main" in rest and any(f"from {name}" in rest for name in PROGRAMS)
    name = os.path.basename(first)
    return name == "scaler" or name.startswith("scaler_")


def watch(reports: str) -> None:
    """Let this process, and none that it forks, raise and report when it unpickles."""
    # Now: processes that are not watched import what they want, when they want.
    import _pickle
    import pickle

    watched = os.getpid()
    is_told = is_reported = False

    def refuse() -> None:
        nonlocal is_told, is_reported
        if os.getpid() != watched:
            return
        caller = sys._getframe(2)
        here = f"{caller.f_globals.get('__name__')}.{caller.f_code.co_name}"
        if here == "scaler_cluster.process.process.read_config" and not is_told:
            is_told = True
            return
        if not is_reported:
            # Once: the next ones may be a million.
            is_reported = True
            import tempfile
            import traceback

            with tempfile.NamedTemporaryFile("w", dir=reports, delete=False) as file:
                file.write(f"{' '.join(sys.orig_argv)}\n{''.join(traceback.format_stack()[:-1])}")
        raise RuntimeError("this process must not unpickle")

    def refusing(function):
        def refuses(*args, **options):
            refuse()
            return function(*args, **options)

        return refuses

    def refusing_class(base):
        class Refuses(base):  # type: ignore[misc, valid-type]
            def __init__(self, *args, **options):
                refuse()
                super().__init__(*args, **options)

        return Refuses

    load, loads, unpickler = _pickle.load, _pickle.loads, _pickle.Unpickler
    replaced = {
        "load": (load, refusing(load)),
        "loads": (loads, refusing(loads)),
        "Unpickler": (unpickler, refusing_class(unpickler)),
        # In Python alone; ``pickle._load`` and ``pickle._loads`` use it.
        "_Unpickler": (pickle._Unpickler, refusing_class(pickle._Unpickler)),
    }
    for module in (pickle, _pickle):
        for name, (_, refuses) in replaced.items():
            if hasattr(module, name):
                setattr(module, name, refuses)
    originals = {id(refuses): original for original, refuses in replaced.values()}

    def give_back() -> None:
        # A supervisor's fork server, whose forks are the workers: they unpickle as ever.
        for module in tuple(sys.modules.values()) if originals else ():
            for name, value in tuple(getattr(module, "__dict__", {}).items()):
                if id(value) in originals:
                    setattr(module, name, originals[id(value)])
        originals.clear()

    os.register_at_fork(after_in_child=give_back)


if is_watched(sys.orig_argv):
    watch(os.environ["SCALER_TEST_UNPICKLED"])
