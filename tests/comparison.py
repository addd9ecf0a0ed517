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

POINTS = 0.5
"""Of coordinates in a plot: fonts are measured by builds of a library. It is 1/200 of a panel."""


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


def same_plot(committed, drawn):
    """Whether two plots have the same elements, words and looks, and nearly the same coordinates."""
    one, other = ([*elements(svg)] for svg in (committed, drawn))
    return [fixed for fixed, _ in one] == [fixed for fixed, _ in other] and all(
        same_text(mine, theirs, tolerance=POINTS)
        for (_, mine), (_, theirs) in zip(one, other, strict=True)
    )


def elements(svg):
    """What may not differ in each element of an SVG, and its coordinates.

    Names are hashes of what they name: they count by where they come first.
    """
    places = {}
    for element in ElementTree.fromstring(svg).iter():
        fixed, coordinates = [element.tag, (element.text or "").strip()], []
        for key, value in element.items():
            if key == "id" or ("#" in value and key != "style"):
                name = value.removeprefix("url(").removesuffix(")").removeprefix("#")
                fixed.append(places.setdefault(name, len(places)))
            elif key == "style":
                fixed.append(value)
            else:
                coordinates.append(f"{key} {value}")
        yield fixed, "\n".join(coordinates)


def words_and_points(svg):
    """The words of a plot, and how many points its data have: what all versions draw alike."""
    found = []
    for element in ElementTree.fromstring(svg).iter():
        name = element.tag.partition("}")[2]
        if name == "text":
            found.append("".join(element.itertext()))
        elif element.get("clip-path"):
            lines = element.get("d", "").count("L")
            found.append((lines, sum(one.tag.endswith("}use") for one in element.iter())))
    return found
