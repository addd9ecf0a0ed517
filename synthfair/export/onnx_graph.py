"""A trained model as an ONNX graph, from raw columns to score and decision, in double precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from synthfair.data.schema import Categorical, Numeric
from synthfair.errors import InputError

if TYPE_CHECKING:
    from synthfair.trained import TrainedModel

OPSET, IR_VERSION = 19, 9
"""The first operators that compare text; and the format that came with them."""

SCORE, DECISION = "score", "decision"


def to_graph(model: TrainedModel) -> onnx.ModelProto:
    """See :meth:`synthfair.TrainedModel.to_onnx`."""
    if model.decision:
        raise InputError("to_onnx: the model decides by group, which has no counterpart there")
    schema, graph = model.schema_, _Graph()
    read = dict(schema.features)
    if model.group_input:
        read[schema.sensitive] = schema.columns[schema.sensitive]
    blocks = [
        graph.number(name, column)
        if isinstance(column, Numeric)
        else graph.category(name, column, schema.missing_values, base=name == schema.sensitive)
        for name, column in read.items()
    ]
    inputs = graph.add("Concat", *blocks, axis=1)
    refused = graph.add("IsNaN", graph.add("ReduceSum", inputs, np.array([1]), keepdims=1))
    h = inputs
    for layer in model.hidden:
        products = graph.add("MatMul", h, np.array(layer.weight).T)
        h = graph.add("Relu", graph.add("Add", products, np.array(layer.bias)))
    theta = np.array(model.theta)[:, None]
    weight, constant = (theta[:-1], theta[-1]) if model.intercept else (theta, np.zeros(1))
    score = graph.add("Add", graph.add("MatMul", h, weight), constant)
    # Rows that predict refuses, as a graph cannot: not-a-number, and no decision.
    graph.add("Where", refused, np.nan, score, output=SCORE)
    negative, positive = map(str, schema.decisions)
    labels = np.array([positive]), np.array([negative])
    decision = graph.add("Where", graph.add("Greater", score, 0.0), *labels)
    graph.add("Where", refused, np.array([""]), decision, output=DECISION)
    return graph.finished(model)


class _Graph:
    """Nodes in order; what is given as an array becomes a constant of the graph."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._constants: list[onnx.TensorProto] = []

    def add(self, operator: str, *inputs: Any, output: str | None = None, **attributes: Any) -> str:
        """A node; returns the name of its output."""
        output = output or f"({len(self._nodes)}) {operator}"
        names = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        self._nodes.append(helper.make_node(operator, names, [output], **attributes))
        return output

    def number(self, name: str, column: Numeric) -> str:
        """[N, 1 or 2] (value - lower) / (upper - lower), and whether it is missing."""
        x, lower, upper = self._input(name, TensorProto.DOUBLE), column.lower, column.upper
        if column.out_of_range == "clip":
            allowed = self.add("Less", self.add("Abs", x), np.inf)
        else:
            inside = self.add("GreaterOrEqual", x, lower), self.add("LessOrEqual", x, upper)
            allowed = self.add("And", *inside)
        above = self.add("Sub", self.add("Clip", x, lower, upper), lower)
        scaled = self.add("Where", allowed, self.add("Div", above, upper - lower), np.nan)
        if column.missing == "refuse":
            return scaled
        missing = self.add("IsNaN", x)
        scaled = self.add("Where", missing, 0.0, scaled)
        return self.add("Concat", scaled, self._indicator(missing), axis=1)

    def category(
        self, name: str, column: Categorical, missing_values: tuple[str, ...], *, base: bool
    ) -> str:
        """[N, ...] an indicator of each category, and of missing.

        The first of two categories has none; nor has, with ``base``, the first of any number. What
        is not listed counts as the category ``unlisted``, where the column names one.
        """
        text = isinstance(column.categories[0], str)
        x = self._input(name, TensorProto.STRING if text else TensorProto.DOUBLE)
        values = np.array(column.categories, None if text else float)[None]
        found = self._indicator(self.add("Equal", x, values))
        words = np.array([missing_values or ("",)])
        missing = self._indicator(self.add("Equal", x, words) if text else self.add("IsNaN", x))
        missing = self.add("ReduceMax", missing, np.array([1]), keepdims=1)
        if column.unlisted is not None:
            listed = self.add("ReduceSum", found, np.array([1]), keepdims=1)
            other = self.add("Sub", 1.0, listed)
            if column.missing != "unlisted":
                other = self.add("Mul", other, self.add("Sub", 1.0, missing))
            place = np.array([[one == column.unlisted for one in column.categories]], float)
            found = self.add("Add", found, self.add("Mul", other, place))
        if column.missing == "category":
            found = self.add("Concat", found, missing, axis=1)
        known = self.add("Greater", self.add("ReduceSum", found, np.array([1]), keepdims=1), 0.0)
        first = 1 if base or len(column.categories) == 2 else 0
        columns = np.arange(first, len(column.categories) + (column.missing == "category"))
        return self.add("Where", known, self.add("Gather", found, columns, axis=1), np.nan)

    def finished(self, model: TrainedModel) -> onnx.ModelProto:
        """The model, checked."""
        outputs = [
            helper.make_tensor_value_info(SCORE, TensorProto.DOUBLE, ["N", 1]),
            helper.make_tensor_value_info(DECISION, TensorProto.STRING, ["N", 1]),
        ]
        own = {one.name for one in self._constants} | {node.output[0] for node in self._nodes}
        for name in (one.name for one in self._inputs):
            # An input that is called as a constant is would silently replace it.
            if name in own or not name:
                raise InputError(
                    f"to_onnx: column {name!r}: a part of the graph has that name; rename it"
                )
        title = model.schema_.name or "synthfair"
        graph = helper.make_graph(self._nodes, title, self._inputs, outputs, self._constants)
        made = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="synthfair",
            producer_version=model.version,
        )
        helper.set_model_props(
            made, {"sha256": model.sha256, "schema_hash": model.schema_.hash, "loss": model.loss}
        )
        onnx.checker.check_model(made)
        return made

    def _input(self, name: str, kind: int) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, kind, ["N", 1]))
        return name

    def _constant(self, value: Any) -> str:
        name = f"(constant {len(self._constants)})"
        array = np.asarray(value)
        if array.dtype.kind == "U":
            array = array.astype(object)
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def _indicator(self, condition: str) -> str:
        return self.add("Cast", condition, to=TensorProto.DOUBLE)
