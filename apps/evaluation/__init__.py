"""Judging models: assessments of reward models, who approved what, rankings by people."""
