"""Bugs in help, completion, exit codes, early errors and the progress bar."""

from tests.mutants import Mutant

MUTANTS = [
    Mutant(
        "the overview names no purpose",
        "cli/__init__.py",
        "purpose if overview else None",
        "None",
        "test_help.py",
    ),
    Mutant(
        "a command says nothing but its purpose",
        "cli/__init__.py",
        "purpose if overview else None",
        "purpose",
        "test_help.py",
    ),
    Mutant(
        "paragraphs run over the edge of a terminal",
        "cli/help.py",
        "    width = min(console.width, WIDEST)\n",
        "    width = WIDEST\n",
        "test_help.py",
    ),
    Mutant(
        "a fraction of steps is rounded",
        "cli/parameters.py",
        "return int(tokens[0].value)",
        "return round(float(tokens[0].value))",
        "test_exit.py",
    ),
    Mutant(
        "one value may follow a flag",
        "cli/__init__.py",
        "            consume_multiple=(1, None),  # --data a.csv b.csv\n",
        "",
        "test_help.py",
    ),
    Mutant(
        "a refusal looks like an error of the system",
        "cli/__init__.py",
        'return _fail(REFUSED, f"error: {error}")',
        'return _fail(FAILED, f"error: {error}")',
        "test_exit.py",
    ),
    Mutant(
        "Ctrl-C looks like success",
        "cli/__init__.py",
        "return _fail(INTERRUPTED,",
        "return _fail(DONE,",
        "test_exit.py",
    ),
    Mutant(
        "a bad schema is found after JAX is imported",
        "cli/parameters.py",
        "    read_schema(schema)\n",
        "",
        "test_exit.py",
    ),
    Mutant(
        "training starts JAX before it looks at its table",
        "cli/train.py",
        "    # The rows and their tests.\n",
        "    start_jax()\n",
        "test_exit.py",
    ),
    Mutant(
        "a bar of work that ends early is not full",
        "cli/show.py",
        "        bar.update(task, total=bar.tasks[task].completed)\n",
        "",
        "test_progress.py",
    ),
    Mutant(
        "a bar that never moved stays",
        "cli/show.py",
        "    bar = Progress(*columns, console=terminal(), transient=True)\n",
        "    bar = Progress(*columns, console=terminal())\n",
        "test_progress.py",
    ),
    Mutant(
        "a bar vanishes when work fails",
        "cli/show.py",
        "        bar.live.transient = False\n",
        "",
        "test_progress.py",
    ),
    Mutant(
        "bars are drawn into logs",
        "cli/show.py",
        "    console.quiet = not console.is_interactive\n",
        "",
        "test_progress.py",
    ),
    Mutant(
        "nothing is said at Ctrl-C until the step ends",
        "cli/show.py",
        "        on_press()\n",
        "",
        "test_progress.py",
    ),
]
