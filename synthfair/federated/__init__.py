"""Iterative methods, in rounds between a server and its clients."""
