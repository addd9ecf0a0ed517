from .format import Release, make_header, write_release
from .inspection import Inspection, inspect_release
from .keys import make_keys, read_keys, read_signing_key
from .reading import read_release
from .signature import Signature

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
