"""From frozen snapshots to token ids, and the base model that is built when none is given."""
