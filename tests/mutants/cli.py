"""Bugs in help, completion, exit codes, early errors and the progress bar."""

from tests.mutants import Mutant

MUTANTS = [
    Mutant(
        "-h shows advanced options",
        "cli/options.py",
        '[g for g in groups if not (g.title or "").startswith(_ADVANCED)]',
        "list(groups)",
        "test_help.py",
    ),
    Mutant(
        "common settings are advanced",
        "cli/options.py",
        "parser if key in common else others",
        "others",
        "test_help.py",
    ),
    Mutant(
        "the overview loads every command's settings",
        "cli/options.py",
        "        if name in names:\n",
        "        if True:\n",
        "test_help.py",
    ),
    Mutant(
        "the usage hides what must be given",
        "cli/options.py",
        "if a.option_strings and a.required]",
        "if a.option_strings and not a.dest]",
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
        "cli/inputs.py",
        "    read_schema(schema)\n",
        "",
        "test_exit.py",
    ),
    Mutant(
        "training starts JAX before it looks at its table",
        "cli/train.py",
        "    table, schema, tests = _tables(args)\n    start_jax()\n",
        "    start_jax()\n    table, schema, tests = _tables(args)\n",
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
    Mutant(
        "no files are completed below the first command",
        "cli/completion.py",
        "                _complete_files(command, how)\n",
        "                pass\n",
        "test_completion.py",
    ),
]
