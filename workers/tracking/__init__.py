"""Mirrors a run's metrics, configuration and outcome to TensorBoard, MLflow or Weights & Biases."""
