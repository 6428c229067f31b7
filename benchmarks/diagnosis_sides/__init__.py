"""Other tools that diagnose runs, shown the same curves, in an environment of their own."""
