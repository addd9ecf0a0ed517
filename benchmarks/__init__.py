"""One script a published table or figure, plus speed and scale.

They use what the package's modules offer to anybody, nothing private and nothing of its command
line.
"""


def use_float64() -> None:
    """Double precision, as the command line has it."""
    import jax

    jax.config.update("jax_enable_x64", True)
