"""The authors' own code, run on the clients of our cells (`docs/authors.md`)."""
