"""A cell as a federation: clients are Flower SuperNodes with only their own data, the server a SuperLink."""
