"""How much memory a run will take, from configurations alone, before anything is loaded."""
