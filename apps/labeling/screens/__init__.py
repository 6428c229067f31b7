"""What pages show, prepared for their templates: reads and words, no decisions."""
