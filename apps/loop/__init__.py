"""The whole circle: generate, label, decide, freeze, train, and again."""
