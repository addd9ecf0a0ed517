"""Bugs in what a client reads, optimises, books and releases."""

from tests.mutants import Mutant

MUTANTS = [
    Mutant(
        "clipped values of a surrogate are said after its sums are bought",
        "client/from_file.py",
        "    run.on_rows(rows.clipping)\n",
        "",
        "test_clipping.py",
    ),
    Mutant(
        "a table in Python is clipped without a word",
        "data/encode.py",
        "    clipping.warn(source)\n",
        "    pass\n",
        "test_clipping.py",
    ),
    Mutant(
        "a release without an epsilon is not booked",
        "client/from_file.py",
        "if made.booking:",
        "if False:",
        "test_client.py",
    ),
    Mutant(
        "the checks do not stop a release",
        "client/from_file.py",
        "if not found.risks or self.options.accept_risk:",
        "if True:",
        "test_client.py",
    ),
    Mutant(
        "rows are held out by position",
        "client/held_out.py",
        "apart = digests.to_numpy() < np.uint64(self._threshold)",
        "apart = np.arange(len(digests)) < len(digests) * self._threshold / 2**64",
        "test_gate.py",
    ),
    Mutant(
        "what a budget has bought is bought again",
        "privacy/answers.py",
        "        if self.complete:\n",
        "        if False:\n",
        "test_gate.py",
    ),
    Mutant(
        "what is booked and not bought is booked again",
        "privacy/answers.py",
        "        word, name = self._head()\n",
        "        word, name = self._head()[0], secrets.token_hex(32)\n",
        "test_purchases.py",
    ),
    Mutant(
        "the release is that of the trial",
        "client/from_file.py",
        "            real, held_out = read_rows(run.data, run.schema, config)\n",
        "            real, held_out = read_rows(run.data, run.schema, config, hold_out=share)\n",
        "test_one_path.py",
    ),
    Mutant(
        "a surrogate is that of the trial",
        "client/from_file.py",
        'rows, preview, no_trial = FileBatches(run.data, schema), None, ""',
        'rows, preview, no_trial = FileBatches(run.data, schema, 0.1), None, ""',
        "test_one_path.py",
    ),
    Mutant(
        "a checkpoint of another run is taken",
        "checkpoint.py",
        'if str(file["fingerprint"]) != self.fingerprint:',
        "if False:",
        "test_client.py",
    ),
    Mutant(
        "the release is the last x, not the best",
        "distill/optimize.py",
        "lower = found.objective < so_far.objective",
        "lower = True",
        "test_client.py",
    ),
    Mutant(
        "the outer problem always counts as converged",
        "client/distillation.py",
        "return self.outer_excess <= OUTER_TOLERANCE",
        "return True",
        "test_client.py",
    ),
    Mutant(
        "a problem of a batch that has stopped goes on",
        "distill/optimize.py",
        " & (state.step <= state.last)",
        "",
        "test_many_clients.py",
    ),
    Mutant(
        "clients of a batch get each other's rows",
        "client/many_clients.py",
        "lambda leaf: leaf[i], state",
        "lambda leaf: leaf[0], state",
        "test_many_clients.py",
    ),
]
