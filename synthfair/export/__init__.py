"""A trained model for other libraries: scikit-learn and ONNX."""
