"""Rounds of this suite and of openfgl-lib, timed in alternation: same graph, clients, split and backbone."""
