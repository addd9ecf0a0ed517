"""Every command, and what its arguments are parsed to."""

from synthfair.cli import make_app


def commands_below(above, name=""):
    """Every command, by the words that lead to it."""
    for word in above:
        if not word.startswith("-"):
            command = above[word]
            yield f"{name} {word}".strip(), command
            yield from commands_below(command, f"{name} {word}".strip())


APP = make_app()


ALL = dict(commands_below(APP))


def parsed(words):
    return make_app(words).parse_args(words, exit_on_error=False, print_error=False)
