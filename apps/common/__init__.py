"""What every app stands on: base models, typed requests, registries, embedded servers."""
