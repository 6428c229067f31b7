"""Which link of the loop broke first, from the outside in, with evidence. Plain Python.

    diagnoser = Diagnoser("ppo", config)          # live, one check a step
    found = diagnoser.see(step, metrics)          # new findings of this step
    verdict(diagnoser.findings)                   # what broke first, and what followed

    diagnose(series, kind="ppo", config=config)   # afterwards, over a stored or imported run

The same detectors run in both, so a live run and its record say the same.
"""
