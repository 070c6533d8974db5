"""The scripts beside the package."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.mark.parametrize("name", ["agree", "peers", "quickstart", "repeat", "test"])
@pytest.mark.parametrize("variable, value", [("LAUNCHES", "-1"), ("LAUNCHES", "x"), ("RANKS", "2 x"), ("LOG", "0")])
def test_numbers_are_checked_before_anything_is_made(name, variable, value):
    before = {*SCRIPTS.parent.glob("results/*")}
    wishes = os.environ | {variable: value}
    done = subprocess.run([SCRIPTS / name], env=wishes, text=True, capture_output=True, timeout=20)
    told = f"{name}: {variable}='{value}' is no whole number above zero\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)
    assert {*SCRIPTS.parent.glob("results/*")} == before
