"""The code of clients in a worker: what their functions brought along, one client's at a time.

``sys.path``, ``sys.modules`` and the environment are the process's. So a worker that turns from
the tasks of one client to those of another takes the code of the first out of them, and puts it
back when it turns again: the modules are the same ones then. In the worker of an actor stays what
the actor was made with. No task pays for this while nobody has uploaded anything.
"""

from __future__ import annotations

import importlib
import os
import pickle
import re
import sys
from collections import OrderedDict
from contextlib import suppress
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from scaler_cluster.errors import CodeError
from scaler_cluster.logs import LOGGER
from scaler_cluster.pickling import code_bundle
from scaler_cluster.process.interrupts import deferred

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import ModuleType

    from scaler_cluster.client.present_workers import WorkerInfo
    from scaler_cluster.pickling.code_bundle import Bundle, CarriedCode
    from scaler_cluster.wire.batch import Buffer

OWNERS_KEPT = 8
"""The code of so many clients stays as it is though no function of theirs is left here."""
DIRECTORY = "code"


class LoadedCode:
    """Code that this process can use; what was imported from it lives as long as this.

    Modules that a change of the code leaves as they are stay the same ones: see :func:`_kept`.
    ``before`` is other code of the same client; None: there is none here.
    """

    def __init__(
        self, carried: CarriedCode, directories: dict[bytes, str], before: LoadedCode | None
    ) -> None:
        self.carried = carried
        self.directories = directories
        """Where files are unpacked, by their digests; the newest first."""
        self.providers = _providers(carried.bundle)
        self._modules: dict[str, dict[str, ModuleType]] = {name: {} for name in self.providers}
        """What was imported, by the first part of its name; shared with what has the same."""
        if before is not None:
            kept = _kept(before.providers, self.providers, [*directories.values()])
            self._modules.update({name: before._modules[name] for name in kept})
        self._hidden: dict[str, ModuleType] = {}
        """Modules of the same names that this process has itself."""
        self._environment: dict[str, str | None] = {}
        """What the variables were before."""

    def enter(self) -> None:
        """Let this process import from here first."""
        self._hidden = self._take_modules()
        for modules in self._modules.values():
            sys.modules.update(modules)
        sys.path[:0] = self.directories.values()
        importlib.invalidate_caches()
        variables = self.carried.bundle.variables or {}
        self._environment = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)

    def leave(self) -> None:
        """Let this process import as it did before."""
        for modules in self._modules.values():
            modules.clear()
        for name, module in self._take_modules().items():
            self._modules[_top(name)][name] = module
        sys.modules.update(self._hidden)
        for directory in self.directories.values():
            with suppress(ValueError):
                sys.path.remove(directory)
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def _take_modules(self) -> dict[str, ModuleType]:
        names = [name for name in list(sys.modules) if _top(name) in self._modules]
        return {name: sys.modules.pop(name) for name in names}


def _top(name: str) -> str:
    return name.partition(".")[0]


def _providers(bundle: Bundle) -> dict[str, tuple[bytes, ...]]:
    """Return the digests of the files in which each module or package is."""
    found: dict[str, tuple[bytes, ...]] = {}
    for part in bundle.parts:
        for name in part.modules:
            found[name] = (*found.get(name, ()), part.digest)
    return found


def _kept(
    before: Mapping[str, tuple[bytes, ...]],
    now: Mapping[str, tuple[bytes, ...]],
    directories: Sequence[str],
) -> set[str]:
    """Return the modules and packages that a change leaves as they are.

    Their files are the same ones, and name no module that changes: they may have imported it.
    """
    changed = {name for name in {*before, *now} if before.get(name) != now.get(name)}
    kept = now.keys() - changed
    while changed and kept:
        named = re.compile(rf"\b(?:{'|'.join(map(re.escape, changed))})\b")
        changed = {name for name in kept if any(map(named.search, _sources(name, directories)))}
        kept -= changed
    return kept


def _sources(name: str, directories: Sequence[str]) -> Iterator[str]:
    for directory in directories:
        for path in (Path(directory, f"{name}.py"), *Path(directory, name).rglob("*.py")):
            with suppress(FileNotFoundError):
                yield path.read_text("utf-8", "replace")


class _Owner:
    """A client whose plugins are set up here."""

    def __init__(self) -> None:
        self.revision = -1
        self.plugins: dict[str, tuple[bytes, Any]] = {}
        """By name: the digest of each, and the plugin itself."""


active: LoadedCode | None = None
"""What this process imports from first; None: nobody's code."""
worker: WorkerInfo | None = None
"""What plugins are told of this process; the worker sets it, and the next."""
home = ""
"""A private directory of the cluster on this machine; empty: there is none."""
_is_kept = False
_known: WeakValueDictionary[tuple[bytes, int], LoadedCode] = WeakValueDictionary()
_recent: OrderedDict[bytes, LoadedCode] = OrderedDict()
"""By owner, its newest code; the owner that was used last comes last."""
_owners: dict[bytes, _Owner] = {}


def enter(payload: Buffer, buffers: Sequence[Buffer]) -> tuple[Buffer, Sequence[Buffer]]:
    """Use the code that a function brings, or nobody's; return its pickle and the buffers of it.

    Raises CodeError if the code cannot be used here; then nobody's is.
    """
    carried, payload, buffers = code_bundle.split(payload, buffers)
    if _is_kept:
        return payload, buffers
    if carried is None:
        switch(None)
        return payload, buffers
    key = carried.bundle.owner, carried.bundle.revision
    loaded = _known.get(key)
    if loaded is not None:
        switch(loaded)
        return payload, buffers
    switch(None)
    before = _before(carried.bundle)
    loaded = LoadedCode(carried, _unpacked(carried, before), before)
    switch(loaded)
    try:
        _set_up(carried)
    except BaseException:
        switch(None)
        raise
    _known[key] = loaded
    newest = _recent.get(carried.bundle.owner)
    if newest is None or newest.carried.bundle.revision < carried.bundle.revision:
        _recent[carried.bundle.owner] = loaded
    return payload, buffers


def _before(bundle: Bundle) -> LoadedCode | None:
    """Return the code of a client that was used here: the same, if a change was taken back."""
    codes = [code for (owner, _), code in list(_known.items()) if owner == bundle.owner]
    files = _providers(bundle)
    return max(
        codes,
        key=lambda code: (code.providers == files, code.carried.bundle.revision),
        default=None,
    )


def keep() -> None:
    """Use no other code any more: an actor lives here, whose class may be of this."""
    global _is_kept  # noqa: PLW0603
    _is_kept = True


def switch(loaded: LoadedCode | None) -> None:
    """Use this code from now on, and no other."""
    global active  # noqa: PLW0603
    if active is loaded or _is_kept:
        return
    # A task that is interrupted in here would leave half of both.
    with deferred:
        if active is not None:
            active.leave()
        active = loaded
        if loaded is not None:
            loaded.enter()
    if loaded is not None:
        owner = loaded.carried.bundle.owner
        if owner in _recent:
            _recent.move_to_end(owner)
    while len(_recent) > OWNERS_KEPT:
        _recent.popitem(last=False)
    in_use = {bundle_owner for bundle_owner, _ in list(_known)}
    for owner in [one for one in _owners if one not in in_use]:
        if loaded is None or owner != loaded.carried.bundle.owner:
            _tear_down_all(_owners.pop(owner))


def carried() -> CarriedCode | None:
    """Return what the tasks that a task submits carry: what it has itself."""
    return active.carried if active is not None else None


def close() -> None:
    """Tear down what plugins have set up: the process is about to end."""
    while _owners:
        name, owner = _owners.popitem()
        # Plugins may be of uploaded modules.
        switch(_recent.get(name))
        _tear_down_all(owner)


# -- files -----------------------------------------------------------------------------------


def _unpacked(carried: CarriedCode, before: LoadedCode | None) -> dict[bytes, str]:
    """Return the directories of the files, the newest first; raises CodeError."""
    from zipfile import BadZipFile  # few workers need it, and it takes a while to import

    parts = zip(carried.bundle.parts, carried.contents, strict=True)
    files = [(part.digest, content) for part, content in parts if not part.is_plugin]
    known = before.directories if before is not None else {}
    try:
        return {
            digest: known.get(digest) or _directory_of(content)
            for digest, content in reversed(files)
        }
    except (OSError, ValueError, BadZipFile) as error:
        raise CodeError(f"the uploaded code cannot be unpacked here: {error}") from error


def _directory_of(content: memoryview) -> str:
    """Return where a file is unpacked; the first worker of a machine does it for all.

    It is found by its content, whatever its client calls it: nobody else's is under that name.
    """
    import shutil
    import tempfile
    from zipfile import ZipFile

    if not home:
        raise CodeError("this worker has no directory of its cluster to unpack uploaded code in")
    target = Path(home, DIRECTORY, blake2b(content, digest_size=16).hexdigest())
    if not target.exists():
        made = Path(tempfile.mkdtemp(dir=_made(target.parent)))
        try:
            with ZipFile(BytesIO(content)) as archive:
                archive.extractall(made)
            try:
                made.rename(target)
            except OSError:
                # Another worker may have been faster.
                if not target.is_dir():
                    raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return str(target)


def _made(directory: Path) -> Path:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory


# -- plugins ---------------------------------------------------------------------------------


def _set_up(carried: CarriedCode) -> None:
    """Set up the plugins that are new, and tear down those that are gone; raises CodeError."""
    bundle: Bundle = carried.bundle
    owner = _owners.setdefault(bundle.owner, _Owner())
    if bundle.revision < owner.revision:
        # A task that was submitted before the last change: plugins only go forward.
        return
    owner.revision = bundle.revision
    parts = zip(bundle.parts, carried.contents, strict=True)
    wanted = {part.name: (part.digest, content) for part, content in parts if part.is_plugin}
    for name, (digest, plugin) in list(owner.plugins.items()):
        if name not in wanted or wanted[name][0] != digest:
            del owner.plugins[name]
            _tear_down(name, plugin)
    for name, (digest, content) in wanted.items():
        if name not in owner.plugins:
            try:
                plugin = pickle.loads(content)
                plugin.setup(worker)
            except Exception as error:
                text = str(error) if isinstance(error, CodeError) else repr(error)
                raise CodeError(f"the plugin {name!r} could not be set up: {text}") from error
            owner.plugins[name] = digest, plugin


def _tear_down_all(owner: _Owner) -> None:
    for name, (_, plugin) in reversed(list(owner.plugins.items())):
        _tear_down(name, plugin)


def _tear_down(name: str, plugin: Any) -> None:
    tear_down = getattr(plugin, "teardown", None)
    if tear_down is None:
        return
    try:
        tear_down(worker)
    except Exception:
        LOGGER.warning("the plugin %s raised when it was torn down", name, exc_info=True)
