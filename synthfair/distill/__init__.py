"""The distillation of real rows into synthetic ones: a bilevel problem."""
