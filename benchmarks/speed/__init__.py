"""How long an outer step takes, against other packages and against the machine's limits."""
