"""Bugs in reading release files."""

from tests.mutants import Mutant

MUTANTS = [
    Mutant(
        "the digest of the content is not compared",
        "release/keys.py",
        "if signature.sha256 != digest.hex():",
        "if False:",
        "test_signature.py",
    ),
    Mutant(
        "a signature is not verified",
        "release/keys.py",
        "        Ed25519PublicKey.from_public_bytes(key).verify(signature, domain + content)\n",
        "        pass\n",
        "test_signature.py",
    ),
    Mutant(
        "anybody may send, whatever the keys",
        "release/reading.py",
        "    if keys is not None:\n        require_signer",
        "    if False:\n        require_signer",
        "test_signature.py",
    ),
    Mutant(
        "positions of records may be between categories",
        "release/reading.py",
        "(values <= last) & (values == np.rint(values))",
        "(values <= last)",
        "test_surrogate_release.py",
    ),
    Mutant(
        "a missing number is read where there may be none",
        "release/reading.py",
        "return inside | (missing & may_miss), words",
        "return inside | missing, words",
        "test_surrogate_release.py",
    ),
    Mutant(
        "infinite features are read",
        "release/reading.py",
        "right = np.abs(values) <= MAX_ABSOLUTE",
        "right = ~np.isnan(values)",
        "test_release.py",
    ),
    Mutant(
        "a guarantee is believed",
        "release/reading.py",
        "    if header.privacy.guarantee:\n",
        "    if False:\n",
        "test_release.py",
    ),
]
