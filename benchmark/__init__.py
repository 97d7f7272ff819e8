"""Runner of the benchmark: plans and runs cells, stores records, judges them and writes pages."""
