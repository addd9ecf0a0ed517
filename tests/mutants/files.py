"""Bugs in how outputs are claimed and written, and in Ctrl-C."""

from tests.mutants import Mutant

MUTANTS = [
    Mutant(
        "--force replaces links and pipes",
        "files.py",
        "    if not stat.S_ISREG(mode):\n",
        "    if False:\n",
        "test_files.py",
    ),
    Mutant(
        "a pipe that turns up during the work is replaced",
        "files.py",
        "        _is_file(path)\n        temporary.replace(path)\n",
        "        temporary.replace(path)\n",
        "test_files.py",
    ),
    Mutant(
        "what another run has just written is not looked for",
        "files.py",
        "        require_free(*paths, force=force)  # a run",
        "        # a run",
        "test_files.py",
    ),
    Mutant(
        "locks of outputs stay",
        "files.py",
        "            stack.callback(Path(lock.lock_file).unlink, missing_ok=True)\n",
        "",
        "test_files.py",
    ),
    Mutant(
        "a client does not claim its output",
        "client/from_file.py",
        "    with claimed(output, force=options.force):\n",
        "    if True:\n",
        "test_client.py",
    ),
    Mutant(
        "a full disk names no file",
        "files.py",
        "            error.filename = str(path)\n",
        "            pass\n",
        "test_files.py",
    ),
    Mutant(
        "others may read the ledger",
        "chain.py",
        "os.O_CREAT, OWNER_ONLY)",
        "os.O_CREAT, 0o644)",
        "test_ledger.py",
    ),
    Mutant(
        "others may read noisy answers",
        "privacy/answers.py",
        ", mode=OWNER_ONLY)",
        ")",
        "test_ledger.py",
    ),
    Mutant(
        "memory is limited for each release alone",
        "server/pooling.py",
        "room=MAX_CELLS - cells",
        "room=MAX_CELLS",
        "test_server.py",
    ),
    Mutant(
        "Ctrl-C is an exception in the middle of an import",
        "interrupt.py",
        '        if at.f_code.co_filename == "<frozen importlib._bootstrap>":\n',
        "        if False:\n",
        "test_interrupt.py",
    ),
    Mutant(
        "Ctrl-C is lost in a callback of the collector",
        "interrupt.py",
        "        sys.unraisablehook = _send_again\n",
        "",
        "test_interrupt.py",
    ),
    Mutant(
        "Ctrl-C is cared for after the imports",
        "client/__main__.py",
        "    exit_on_interrupt()\n    from",
        "    from",
        "test_interrupt.py",
    ),
]
