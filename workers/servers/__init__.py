"""Answers by an OpenAI-compatible inference server: asked, read, kept as they come."""
