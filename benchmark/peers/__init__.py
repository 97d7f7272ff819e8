"""This suite beside openfgl-lib: the same graph, clients, split, network and schedule, timed interleaved.

`pipe`, `clients`, `extensions` and `openfgl_worker` run in the peer's environment and import nothing that it
lacks; `benchmark.authors` uses the first three and `worker` too.
"""
