"""Which link of the loop broke first, from the outside in, with evidence. Plain Python.

    detective = Detective("ppo", config)          # live, one look a step
    found = detective.see(step, figures)          # new findings of this step
    verdict(detective.findings)                   # what broke first, and what followed

    diagnose(series, kind="ppo", config=config)   # afterwards, over a stored or imported run

The same detectors run in both, so a live run and its record say the same.
"""
