"""The Django side. Pipeline order is import order: see docs/architecture.md."""
