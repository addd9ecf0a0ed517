from .format import Inspection, Release, inspect_release, make_header, read_release, write_release
from .keys import Signature, make_keys, read_keys, read_signing_key

__all__ = [
    "Inspection",
    "Release",
    "Signature",
    "inspect_release",
    "make_header",
    "make_keys",
    "read_keys",
    "read_release",
    "read_signing_key",
    "write_release",
]
