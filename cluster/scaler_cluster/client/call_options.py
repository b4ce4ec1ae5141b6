"""How calls are run: what a user asks for, wherever that is said."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from scaler_cluster import arguments
from scaler_cluster.client.calls import MARK
from scaler_cluster.errors import ConfigError
from scaler_cluster.texts import shown
from scaler_cluster.wire.options import DEFAULT_OPTIONS, TaskOptions, intern_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

    from typing_extensions import Unpack

    from scaler_cluster.client.cache import ResultCache

F = TypeVar("F", bound="Callable[..., Any]")


class TaskKeywords(TypedDict, total=False):
    """What may be said of tasks; what is not said stays as it is."""

    priority: int
    """Higher runs first; default: 0."""
    timeout: float | None
    """Seconds from its start after which a task is stopped, with TaskTimeoutError."""
    retries: int
    """How often a task is run again after it raised or its worker died; default: 0."""
    at_most_once: bool
    """Never start a task twice, even if its machine was lost."""
    cache: str | PathLike[str] | ResultCache | None
    """Where results are kept; None: nowhere."""


class CallKeywords(TaskKeywords, total=False):
    """The same, and what some calls have as arguments of their own."""

    capabilities: Mapping[str, float] | None
    """What the worker must have, as ``{"gpu": 1}``; -1: it only has to be there."""
    cores: int
    """How many workers of its machine run nothing else meanwhile; -1: all of them."""
    reserialize: bool
    """Whether the content of large read-only arguments is looked at each time."""


def _timeout(name: str, value: Any) -> float | None:
    return None if value is None else arguments.seconds(name, value)


def _cache(_: str, value: Any) -> ResultCache | None:
    from scaler_cluster.client.cache import ResultCache

    return value if value is None or isinstance(value, ResultCache) else ResultCache(value)


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "priority": arguments.whole,
    "timeout": _timeout,
    "retries": partial(arguments.whole, least=0),
    "at_most_once": arguments.flag,
    "capabilities": arguments.capabilities,
    "cores": arguments.cores,
    "reserialize": arguments.flag,
    "cache": _cache,
}
_FIELDS = {
    name: "timeout_s" if name == "timeout" else name
    for name in _CHECKS
    if name not in {"reserialize", "cache"}
}
"""Those that travel with a task, and what the message calls them."""


def check_options(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as the engine has them; raises TypeError or ConfigError."""
    for name in named:
        if name not in _CHECKS:
            raise TypeError(f"there is no option {name!r}: there are {', '.join(_CHECKS)}")
    return {name: _CHECKS[name](name, value) for name, value in named.items()}


@dataclass(frozen=True)
class CallOptions:
    """What is asked of the calls of a client, an executor, or a view of one."""

    own: TaskOptions = DEFAULT_OPTIONS
    """What the client itself decides: output, log records, profiles."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """What was said of tasks, and was checked."""
    kept: ResultCache | None = None
    """Where the client keeps results of which nothing else was said."""

    def including(self, named: Mapping[str, Any]) -> CallOptions:
        """Return these options with others in their place; raises TypeError or ConfigError."""
        return self._with({**self.given, **check_options(named)}) if named else self

    def of(self, function: Callable[..., Any]) -> CallOptions:
        """Return the options of a function: what was said of it counts where nothing else was."""
        marked = getattr(function, MARK, None)
        return self._with({**marked, **self.given}) if type(marked) is dict else self

    def of_nodes(self, graph: Mapping[Any, Any]) -> dict[Any, CallOptions]:
        """Return the options of those nodes of a graph whose functions have some of their own."""
        return {
            key: self.of(node[0])
            for key, node in graph.items()
            if type(node) is tuple and node and getattr(node[0], MARK, None) is not None
        }

    def _with(self, given: dict[str, Any]) -> CallOptions:
        if given.get("retries") and given.get("at_most_once"):
            raise ConfigError("retries must be 0 where at_most_once is True")
        return replace(self, given=given)

    @cached_property
    def task(self) -> TaskOptions:
        """As they travel with a task that has a future."""
        named = {_FIELDS[name]: one for name, one in self.given.items() if name in _FIELDS}
        return intern_options(replace(self.own, **named))

    @cached_property
    def unmeasured(self) -> TaskOptions:
        """As they travel with tasks without futures: what those took, nobody could ask for."""
        return intern_options(replace(self.task, profiling=False))

    @cached_property
    def cache(self) -> ResultCache | None:
        """Where results are kept; None: nowhere."""
        return self.given.get("cache", self.kept)  # type: ignore[no-any-return]

    @cached_property
    def reserialize(self) -> bool:
        """Whether large arguments are looked at also if nobody may write to them."""
        return self.given.get("reserialize", False)  # type: ignore[no-any-return]


def task(**named: Unpack[CallKeywords]) -> Callable[[F], F]:
    """Return a decorator that gives a function options, wherever it is submitted.

    The function itself stays as it is. What is said where it is submitted (``options``, keywords)
    counts more than this, and this more than what a client was made with. It concerns the function
    itself, not a partial of it.

    Args:
        **named: As for :meth:`ScalerExecutor.options`.

    Raises:
        TypeError: There is no such option, or it has the wrong type; or what is decorated takes no
            attributes.
        ConfigError: An option is out of its bounds, or ``retries`` and ``at_most_once`` are both
            given.

    """
    given = CallOptions().including(named).given

    def mark(function: F) -> F:
        arguments.function(function, "task")
        try:
            setattr(function, MARK, dict(given))
        except AttributeError:
            raise TypeError(
                f"task() needs a function of Python, not {shown(function)}, which takes no "
                "attributes: use options() where it is submitted"
            ) from None
        return function

    return mark
