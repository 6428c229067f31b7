"""What the recipes share: trainers of trl with guardrails, and the loop of reward models."""
