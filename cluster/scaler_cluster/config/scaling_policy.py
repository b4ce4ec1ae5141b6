"""How a scheduler decides how many workers its managers are to have, as users write it."""

from __future__ import annotations

from dataclasses import dataclass

ADAPTIVE, VANILLA, CAPABILITY, ELASTIC = "adaptive", "vanilla", "capability", "fixed_elastic"
STATIC, NO, WATERFALL = "static", "no", "waterfall_v1"
SCALINGS = (ADAPTIVE, VANILLA, CAPABILITY, ELASTIC, STATIC, NO)
"""What ``scaling=`` may be; ``static`` may have a number, as ``static:4``."""
ALLOCATIONS = ("even_load", "even", "capability")
ENGINES = ("simple", WATERFALL)


@dataclass(frozen=True)
class WaterfallRule:
    """A manager, and when its turn comes."""

    priority: int
    """Smaller numbers come first."""
    manager: str
    most: int | None
    """At most so many workers; None: as many as it offers."""


@dataclass(frozen=True)
class ScalingPolicy:
    """How many workers managers are to have: one of SCALINGS, or WATERFALL with its rules."""

    kind: str = ADAPTIVE
    count: int | None = None
    """Of STATIC: how many workers each manager has; None: as many as it offers."""
    primary: str = ""
    """Of ELASTIC: the manager that has one unit at most; empty: the one that came first."""
    rules: tuple[WaterfallRule, ...] = ()

    def passes_over(self, manager: str) -> bool:
        """Return True if it has rules, and none for this manager."""
        return self.kind == WATERFALL and all(rule.manager != manager for rule in self.rules)


def read_policy(engine: str, content: str) -> ScalingPolicy:
    """Return what a policy's content says; raises ValueError, as the end of a sentence."""
    if engine == WATERFALL:
        return ScalingPolicy(WATERFALL, rules=_read_rules(content))
    entries: dict[str, str] = {}
    for part in content.split(";"):
        name, mark, what = part.partition("=")
        entries[name.strip()] = what.strip()
        if not mark:
            raise ValueError(
                f"must be of the form allocate=even_load; scaling=adaptive, not {content!r}"
            )
    if unknown := entries.keys() - {"allocate", "scaling"}:
        raise ValueError(f"has no {min(unknown)}=, only allocate= and scaling=")
    if entries.get("allocate") not in ALLOCATIONS:
        known = ", ".join(ALLOCATIONS)
        raise ValueError(f"must have allocate= with one of {known}, not {content!r}")
    kind, mark, count = entries.get("scaling", "").partition(":")
    if kind not in SCALINGS or (mark and (kind != STATIC or not count.isdecimal())):
        known = ", ".join(SCALINGS)
        raise ValueError(f"must have scaling= with one of {known} (or static:N), not {content!r}")
    return ScalingPolicy(kind, int(count) if mark else None)


def _read_rules(content: str) -> tuple[WaterfallRule, ...]:
    """Return the rules of a waterfall: lines ``priority,worker_manager_id[,max]``."""
    rules: list[WaterfallRule] = []
    for line in content.splitlines():
        text = line.partition("#")[0].strip()
        if not text:
            continue
        parts = [part.strip() for part in text.split(",")]
        numbers = [parts[0], *parts[2:]]
        if len(parts) not in (2, 3) or not parts[1]:
            raise ValueError(f"must have lines priority,worker_manager_id[,max], not {text!r}")
        if not all(number.lstrip("-").isdecimal() for number in numbers):
            raise ValueError(f"must have whole numbers before and after the id, not {text!r}")
        if any(one.manager == parts[1] for one in rules):
            raise ValueError(f"names the manager {parts[1]!r} twice")
        most = int(parts[2]) if len(parts) > 2 else None
        if most is not None and most < 0:
            raise ValueError(f"must have 0 or more as the most workers, not {text!r}")
        rules.append(WaterfallRule(int(parts[0]), parts[1], most))
    if not rules:
        raise ValueError("must have at least one line priority,worker_manager_id[,max]")
    return tuple(rules)
