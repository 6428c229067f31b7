"""Which seeds detectors may be tuned on, and which ones are reported.

Written down before any detector was tuned. A seed makes a whole world: what is worth saying, who
voted, the models and every draw. No seed is in both lists.
"""

# Detectors, thresholds and the sizes of the runs were chosen on these.
TUNING_SEEDS = (1, 2)  # with every fault
TUNING_HEALTHY = tuple(range(1, 9))

# Looked at once, with what was chosen above, after the rules were frozen.
FINAL_SEEDS = tuple(range(401, 406))  # with every fault, × 2 shapes
FINAL_HEALTHY = tuple(range(401, 501))  # × 2 shapes: 200 runs in which no contract may speak

# The same for runs that learn from fixed rows (SFT, reward, DPO).
ROWS_TUNING_SEEDS = (11, 12)
ROWS_TUNING_HEALTHY = (11, 12, 13, 14)

# Chosen after the rules were frozen. 611 to 620 and 711 to 720 were such before: limits were chosen
# on the former since, and the first checks of a rule left out after the latter were looked at.
ROWS_FINAL_SEEDS = (811, 812)  # with every fault, × 2 shapes
ROWS_FINAL_HEALTHY = tuple(range(811, 821))  # × 2 shapes: 20 runs of each kind
