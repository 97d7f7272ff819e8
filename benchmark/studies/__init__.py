"""What maintainers run: campaigns, peers, authors' code. Nothing imports it."""
