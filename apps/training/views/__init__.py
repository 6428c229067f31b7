"""Pages of runs and models. Every page reads from the database, so a refresh loses nothing."""
