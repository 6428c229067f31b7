"""What takes longer than a suite may: a whole site that is killed, stopped, filled, fuzzed and used
by the notebooks.

Programs with a `main`, which print a table and end with status 1 when a limit is not kept.
`make test-system` runs them all.
"""
