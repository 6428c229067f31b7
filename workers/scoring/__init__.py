"""The resident scorer: requests from a Redis stream, scores back by correlation id."""
