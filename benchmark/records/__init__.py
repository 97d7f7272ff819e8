"""Records of runs and their files."""
