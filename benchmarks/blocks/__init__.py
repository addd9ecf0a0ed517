"""Blocks of numbers in the pages of docs/, from the runs of benchmarks."""
