"""Which seeds detectors may be tuned on, and which ones are reported.

Written down before any detector was tuned. A seed makes a whole world: what is worth saying, who
voted, the models and every draw. No seed is in both lists.
"""

# Detectors, thresholds and the sizes of the runs were chosen on these.
TUNING_SEEDS = (1, 2)  # with every fault
TUNING_HEALTHY = tuple(range(1, 9))

# Looked at only with what was chosen above.
FINAL_SEEDS = tuple(range(101, 107))  # with every fault
FINAL_HEALTHY = tuple(range(101, 131))  # 30 seeds × 2 shapes

# Short healthy runs, for contracts that must never speak: worlds of the seeds above, and
# (repeats) runs with other draws in each of them.
SHORT_REPEATS = {"tuning": 2, "final": 4}
SHORT_RUNS = 200  # at most, of the final set
