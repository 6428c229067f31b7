"""How the site is put together, nothing else."""
