"""Projects of federations."""

import json

from builders import make_schema

from synthfair.files import write_json

JOB = {"release": {"release": "surrogate", "k_min": 10}}


def project(**changes):
    return {
        "schema": "schema.json",
        "sites": [{"name": name, "org": f"org_{name}", "limits": {"kinds": ["surrogate"]}}
                  for name in ("a", "b")],
        "jobs": {"single_shot": JOB},
    } | changes  # fmt: skip


def write_project(folder, **changes):
    (folder / "schema.json").write_text(make_schema().to_json())
    write_json(folder / "project.yml", project(**changes))
    return folder / "project.yml"


def change(path, edit):
    document = json.loads(path.read_text())
    edit(document)
    write_json(path, document)
