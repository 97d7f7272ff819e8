"""Studies for maintainers: the campaign over printed figures, other libraries, the authors' code.

`clients`, `pipe` and the workers run in environments of their own and import nothing that those lack.
"""
