"""What watches a run: one table of rules, one engine that judges metrics by them.

    engine = Engine("ppo", config)
    for violation in engine.check(step, metrics): ...
    verdict(engine.findings)                      # what broke first, and what followed

Standard library only: workers, pages and the command line read the same rules. A guardrail is a
rule with an action; what only explains a run is a rule without one.
"""
