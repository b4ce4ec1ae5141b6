"""Public errors: one tree, one suffix, all of them where users look for them."""

from __future__ import annotations

import re

import pytest

import scaler_exec
from scaler_cluster import errors

PUBLIC = [
    one
    for one in vars(errors).values()
    if isinstance(one, type)
    and issubclass(one, BaseException)
    and one.__module__ == errors.__name__
]


@pytest.mark.parametrize("error", PUBLIC)
def test_every_error_is_exported(error):
    """``scaler_exec`` has each error of the engine, under its own name."""
    assert getattr(scaler_exec, error.__name__) is error
    assert error.__name__ in scaler_exec.__all__


@pytest.mark.parametrize("error", PUBLIC)
def test_an_error_ends_in_error_and_nothing_else_does(error):
    """A class is called an error just if ``except ScalerError`` catches it."""
    assert error.__name__.endswith("Error") == issubclass(error, errors.ScalerError)


def test_the_tree_names_every_error():
    """The drawing at the head of ``errors.py`` has every error, with its bases of Python's own."""
    assert errors.__doc__ is not None
    drawn = dict(re.findall(r"(?:─ |^    )(\w+Error)(?:\((\w+)\))?", errors.__doc__, re.MULTILINE))

    assert drawn == {
        one.__name__: ", ".join(base.__name__ for base in one.__bases__ if base not in PUBLIC)
        for one in PUBLIC
        if issubclass(one, errors.ScalerError)
    } | {"ScalerError": ""}
