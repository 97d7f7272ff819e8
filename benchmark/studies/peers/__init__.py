"""This suite beside openfgl-lib and FedGB: same graph, clients, split, network and schedule.

`pipe`, `clients`, `extensions` and `openfgl_worker` run in the peer's environment and import nothing that it
lacks; `benchmark.authors` uses the first three and `worker` too.
"""
