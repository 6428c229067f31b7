"""Which link of the loop broke first, from the outside in, with evidence. Plain Python."""
