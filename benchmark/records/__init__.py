"""What came out of runs, and where it is kept."""
