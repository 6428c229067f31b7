"""Rules that watch a run while it trains, and what each does when it fires."""
