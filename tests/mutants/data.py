"""Bugs of data/: encoding, schemas, partition, downloads."""

from tests.mutants import Mutant

MUTANTS = [
    Mutant(
        "one-hot columns shifted by one category",
        "data/encode.py",
        "np.arange(first, len(column.categories)))",
        "np.arange(first + 1, len(column.categories) + 1))",
        "test_encode.py",
    ),
    Mutant(
        "clipping to the schema's bounds left out",
        "data/encode.py",
        "(np.clip(numbers, column.lower, column.upper) - column.lower)",
        "(numbers - column.lower)",
        "test_encode.py",
    ),
    Mutant(
        "a missing category is not marked as missing",
        "data/encode.py",
        "np.hstack([one_hot, missing[:, None]])",
        "np.hstack([one_hot, 0 * missing[:, None]])",
        "test_encode.py",
    ),
    Mutant(
        "sign of the label",
        "data/encode.py",
        "schema.label_values.index(schema.positive), 1.0, -1.0)",
        "schema.label_values.index(schema.positive), -1.0, 1.0)",
        "test_encode.py",
    ),
    Mutant(
        "a row is both a training and a test row",
        "data/partition.py",
        "part.iloc[n_train:])",
        "part.iloc[n_train - 1 :])",
        "test_partition.py",
    ),
    Mutant(
        "the hash of a schema ignores the sensitive attribute",
        "data/schema.py",
        'self.model_dump(mode="json")',
        'self.model_dump(mode="json", exclude={"sensitive"})',
        "test_schema.py",
    ),
    Mutant(
        "sha256 of a file at hand not checked",
        "data/datasets.py",
        "            if (found := _sha256(path)) != source.sha256:\n                raise",
        "            if not (found := _sha256(path)):\n                raise",
        "test_datasets.py",
    ),
    Mutant(
        "nested columns of Parquet are read",
        "data/tables.py",
        "if pa.types.is_nested(column.type) and column.name not in ignored:",
        "if False:",
        "test_tables.py",
    ),
    Mutant(
        "rows count the header where Arrow does",
        "data/tables.py",
        "int(row[1]) - 1",
        "int(row[1])",
        "test_tables.py",
    ),
    Mutant(
        "UTF-16, gzip and spreadsheets are taken for CSV",
        "data/tables.py",
        "        if begins.startswith(start) and",
        "        if False and",
        "test_tables.py",
    ),
    Mutant(
        "links that form a loop end the ledger with a traceback",
        "privacy/ledger.py",
        "place = Path(os.path.realpath(data))",
        "place = data.resolve()",
        "test_ledger.py",
    ),
    Mutant(
        "nested TOML ends with a traceback",
        "config/loading.py",
        "    except RecursionError as error:\n",
        "    except ZeroDivisionError as error:\n",
        "test_config.py",
    ),
]
