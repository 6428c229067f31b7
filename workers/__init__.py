"""The GPU side: everything that trains, scores or generates. No Django anywhere in here."""
