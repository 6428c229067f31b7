"""Looking at a reward model: what the `assess` recipe is made of."""
