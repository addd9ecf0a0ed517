"""How tests compare what code prints or draws with a page or a plot: words exactly, numbers nearly.

Processors, numbers of threads and builds of libraries round differently, so no test rests on the last
digits of computed numbers. Texts and plots are compared here and nowhere else.
"""

import re
from xml.etree import ElementTree

NUMBER = re.compile(r"(?<![A-Za-z\d])[+-]?\d+(?:\.\d+)?(?:e[+-]?\d{1,3}(?!\d))?")
"""Not within a word, as in a digest: there digits may not differ."""

EXAMPLE = 0.03
"""Between machines, two decisions on the 84 to 118 rows of the smallest group of an example's table
may differ, and a digit. What examples show is several times as large."""


def same_text(claimed, found, *, tolerance=None, rel=0.0):
    """Whether words are the same, however they are spaced, and numbers nearly.

    Numbers may differ by a tolerance, or by rel of the claimed number. Without a tolerance whole
    numbers may not differ, and others by one unit of the last digit that is written.
    """
    texts = [" ".join(text.split()) for text in (claimed, found)]
    if len({tuple(NUMBER.split(text)) for text in texts}) > 1:
        return False
    return all(
        abs(float(one) - float(other))
        <= max(unit(one) if tolerance is None else tolerance, rel * abs(float(one))) + 1e-12
        for one, other in zip(*map(NUMBER.findall, texts), strict=True)
    )


def unit(number):
    """That of the last digit that is written; 0 of a whole number."""
    mantissa, _, exponent = number.partition("e")
    digits = len(mantissa.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - digits) if digits or exponent else 0.0


def words_and_points(svg):
    """The words of a plot, and how many points its data have: what all versions of a library draw."""
    found = []
    for element in ElementTree.fromstring(svg).iter():
        name = element.tag.partition("}")[2]
        if name == "text":
            found.append("".join(element.itertext()))
        elif element.get("clip-path"):
            lines = element.get("d", "").count("L")
            found.append((lines, sum(one.tag.endswith("}use") for one in element.iter())))
    return found
