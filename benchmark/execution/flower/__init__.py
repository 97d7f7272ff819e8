"""A cell as a federation: each client a Flower SuperNode with its own data alone, the server a SuperLink."""
