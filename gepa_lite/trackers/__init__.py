"""A run in the tools that a team already looks at: MLflow, Weights & Biases, OpenTelemetry."""
