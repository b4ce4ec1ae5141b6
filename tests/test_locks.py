"""What CI installs is written down, with its hashes: ``locks/`` has all that is asked for."""

from __future__ import annotations

import os
import re
from importlib.metadata import distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house import CONFIG, HOUSE

PROJECT = CONFIG["project"]
EXTRAS = [text for texts in PROJECT["optional-dependencies"].values() for text in texts]
GROUPS = {
    # A group may also include another one, as a table.
    name: [text for text in texts if isinstance(text, str)]
    for name, texts in CONFIG["dependency-groups"].items()
}
ASKED_FOR = {
    "tests": [
        *CONFIG["build-system"]["requires"],
        *PROJECT["dependencies"],
        *EXTRAS,
        *(text for name, texts in GROUPS.items() if name != "tox" for text in texts),
    ],
    "tox": GROUPS["tox"],
}
RENEW = "tox run -e lock"


def locked(name: str) -> dict[str, list[str]]:
    """Return the versions of each package that a file locks; another Python may have another."""
    found: dict[str, list[str]] = {}
    text = (HOUSE / "locks" / f"{name}.txt").read_text()
    for entry in re.split(r"\n(?=\w)", re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE)):
        package, _, rest = entry.partition("==")
        assert " --hash=sha256:" in rest, package
        found.setdefault(canonicalize_name(package), []).append(rest.split()[0])
    return found


@pytest.mark.parametrize("name", ASKED_FOR)
def test_a_lock_has_all_that_is_asked_for(name) -> None:
    """Each requirement of pyproject.toml is in the file, in versions that meet it."""
    versions = locked(name)

    for text in ASKED_FOR[name]:
        asked = Requirement(text)
        if asked.name != PROJECT["name"]:
            assert canonicalize_name(asked.name) in versions, RENEW
            for version in versions[canonicalize_name(asked.name)]:
                assert version in asked.specifier, f"{asked.name}: {RENEW}"


@pytest.mark.skipif("UV_CONSTRAINT" not in os.environ, reason="installed by hand, not by tox")
def test_nothing_else_is_installed() -> None:
    """All packages of an environment of tox are locked, but for this one."""
    versions = locked("tests")
    installed = {canonicalize_name(one.name): one.version for one in distributions()}
    installed.pop(PROJECT["name"])

    assert {} == {
        name: version
        for name, version in installed.items()
        if version not in versions.get(name, [])
    }
