"""Language models: loading, adapters, the frozen reference, log probabilities of given texts."""
