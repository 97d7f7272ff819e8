"""What is run: cells, tables of cells, and what users add of their own."""
