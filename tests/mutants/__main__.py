"""Plants each bug in a copy of the project and runs its tests, which must fail.

python -m tests.mutants                  all of them
python -m tests.mutants privacy server   those of some modules of this folder
python -m tests.mutants --jobs 1         one after the other
python -m tests.mutants --most 30        thirty of them, as CI does
"""

from __future__ import annotations

import argparse
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import tests.mutants
from tests.mutants import Mutant

ROOT = Path(__file__).resolve().parents[2]

NEEDED = (
    *("synthfair", "tests", "configs", "benchmarks", "examples"),
    *("pyproject.toml", "README.md"),
)

CAUGHT, SURVIVED = 1, 0
"""Exit codes of pytest: tests failed; all passed."""


def find_mutants(rooms: list[str]) -> list[Mutant]:
    """The lists of these modules, or of all; each old text must stand in its file once."""
    modules = [m.name for m in pkgutil.iter_modules(tests.mutants.__path__) if m.name != "__main__"]
    if unknown := set(rooms) - set(modules):
        sys.exit(f"no list of mutants named {sorted(unknown)}; there are {modules}")
    found = [m for room in rooms or modules for m in import_module(f"tests.mutants.{room}").MUTANTS]
    for mutant in found:
        times = (ROOT / "synthfair" / mutant.file).read_text().count(mutant.old)
        if times != 1:
            sys.exit(f"{mutant.bug}: the old text stands {times} times in {mutant.file}")
    return found


def run_tests(folder: Path, files: str) -> int:
    """Exit code of pytest in a copy, on these test files, until one test fails."""
    arguments = ["-x", "-q", "--no-header", *(f"tests/{name}" for name in files.split())]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(folder),
            # Most compiled code is that of the tests themselves.
            "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".pytest_cache" / "compiled"),
        },
        capture_output=True,
        check=False,
    )
    return done.returncode


def in_a_copy(files: str, mutant: Mutant | None = None) -> int:
    """Exit code of these tests in a copy of the project, with a bug planted or without."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in NEEDED:
            source, target = ROOT / part, folder / part
            if source.is_dir():
                skip = shutil.ignore_patterns("__pycache__", "results")
                shutil.copytree(source, target, ignore=skip)
            elif source.exists():
                shutil.copy(source, target)
        if mutant:
            path = folder / "synthfair" / mutant.file
            path.write_text(path.read_text().replace(mutant.old, mutant.new))
        return run_tests(folder, files)


def verdict_on(mutant: Mutant) -> str:
    """What became of a bug, in a word."""
    code = in_a_copy(mutant.tests, mutant)
    return {CAUGHT: "caught", SURVIVED: "SURVIVED"}.get(code, f"pytest ended with {code}")


def main() -> int:
    """Runs everything; 1 where a bug survived, or where tests fail without one."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("rooms", nargs="*", help="Modules of tests/mutants; all if none is given.")
    parser.add_argument(
        "--most", type=int, metavar="N", help="Only so many of them, spread over the lists."
    )
    parser.add_argument(
        "--passed", action="store_true", help="The tests have just passed: do not run them first."
    )
    parser.add_argument("--jobs", type=int, default=2, help="Copies at a time. Default: 2.")
    args = parser.parse_args()
    mutants = find_mutants(args.rooms)
    if args.most and args.most < len(mutants):
        mutants = [mutants[i * len(mutants) // args.most] for i in range(args.most)]
    start = time.monotonic()
    with ThreadPoolExecutor(args.jobs) as pool:
        files = [] if args.passed else sorted({mutant.tests for mutant in mutants})
        broken = [f for f, code in zip(files, pool.map(in_a_copy, files), strict=True) if code]
        if broken:
            print(f"without a bug these fail already: {', '.join(broken)}")
            return 1
        verdicts = []
        for mutant, verdict in zip(mutants, pool.map(verdict_on, mutants), strict=True):
            print(f"{verdict:9} {mutant.file:28} {mutant.bug}", flush=True)
            verdicts.append(verdict)
    survived = len(verdicts) - verdicts.count("caught")
    seconds = time.monotonic() - start
    print(f"{verdicts.count('caught')} caught, {survived} not, in {seconds:.0f} s")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main())
