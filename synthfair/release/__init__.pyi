from .format import Release, write_release
from .inspection import Inspection, inspect_release
from .keys import make_keys, read_keys, read_signing_key
from .reading import read_release

__all__ = [
    "Inspection",
    "Release",
    "inspect_release",
    "make_keys",
    "read_keys",
    "read_release",
    "read_signing_key",
    "write_release",
]
