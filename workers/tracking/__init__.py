"""Mirrors a run's figures, configuration and outcome to TensorBoard, MLflow or Weights & Biases."""
