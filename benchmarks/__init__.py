"""Published tables and figures again, and speed and scale: ``python -m benchmarks all``."""
