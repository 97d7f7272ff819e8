"""The site `results/site`: one view for each question about the records, readable without a network."""
