"""How weights, gradients and rows are laid out over the processes of a job."""
