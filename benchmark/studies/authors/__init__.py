"""The public code of papers on our clients: our graph, clients and split, their client, server and training.

A checkout is brought by the user and nothing of it is kept here. `handover` and the `…_worker` modules run in
the checkout's environment and import nothing that it lacks; `docs/authors.md` lists what they replace.
"""
