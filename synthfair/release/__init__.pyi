from .format import Release, make_header, write_release
from .keys import Signature, make_keys, read_keys, read_signing_key
from .reading import Inspection, inspect_release, read_release

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
