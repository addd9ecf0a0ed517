"""Results of fixed seeds are those of tests/golden; a run of its own, as JAX is set up otherwise."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_results_of_fixed_seeds_are_as_before():
    command = [sys.executable, "-m", "tests.golden", "--check"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
