"""The runs of the configurations."""

RUNS = {
    "law_school/race": ("law_school", "race", 2, 0.885, 0.06),
    "law_school/gender": ("law_school", "male", 2, 0.885, 0.06),
    "dutch/gender": ("dutch_numbers", "sex", 4, 0.785, 0.10),
}
