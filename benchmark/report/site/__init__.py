"""The site `results/site`: answers from the records, a view for each question, readable without a network."""
