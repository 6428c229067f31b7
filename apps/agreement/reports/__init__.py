"""What is said of single annotators: their figures as stored data, their flags in sentences."""
