"""`index.html`: the whole results folder as one page to ask, which needs no network."""
