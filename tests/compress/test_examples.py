"""The examples in the documentation of the codecs are what they do."""

import doctest
import importlib
from pathlib import Path

import pytest

import compress

MODULES = ["compress", *sorted(f"compress.{path.stem}" for path in Path(compress.__file__).parent.glob("[a-z]*.py"))]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("name", compress.TABLE)
def test_every_class_has_an_example(name):
    entry = compress.TABLE[name]
    kind = getattr(importlib.import_module(f"compress.{entry.module}"), entry.kind)
    assert ">>> " in kind.__doc__
