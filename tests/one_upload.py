"""What must hold after the job ``single_shot`` of real processes."""

import json

import psutil


def processes_of(folder):
    """Those whose command names a folder."""
    found = psutil.process_iter(["cmdline"])
    return [one for one in found if str(folder) in " ".join(one.info["cmdline"] or ())]


def require_one_upload(results):
    """What the submitter has, and that each site has sent something."""
    assert {path.name for path in results.iterdir()} == {
        "model.json", "metrics.json", "federation.json"}  # fmt: skip
    sites = json.loads((results / "federation.json").read_text())["sites"]
    assert sites
    for booked in sites.values():
        assert booked["code"] == "ok"
        assert booked["carried_bytes"] > 0
