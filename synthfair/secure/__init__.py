"""Sums over clients whose parts nobody sees."""
