"""The record of a job."""

COURSE = {
    "format": "synthfair-federation/1",
    "job": "job-1",
    "server": "hub",
    "version": "0.1.0",
    "seconds": 21.0,
    "rounds": 1,
    "median_round_seconds": 5.5,
    "error": None,
    "sites": {
        "city": {"code": "ok", "rounds": 1, "seconds": 5.5, "site_seconds": None,
                 "carried_bytes": 283000, "version": "0.1.0"},
        "suburbs": {"code": "releases", "rounds": 0, "seconds": 0.1, "site_seconds": 0.02,
                    "carried_bytes": 0, "version": None},
    },
}  # fmt: skip
