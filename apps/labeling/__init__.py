"""Prompts, responses, comparisons; handing out slots, taking votes, deciding."""
