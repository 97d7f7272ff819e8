from __future__ import annotations

import json
from dataclasses import replace

from fedsub.benchmark.report.site.figures import columns_of, figure_line
from tests.benchmark.analysis.test_figures import SCORES, entries_of, entry_of, records_of


def test_records_are_looked_for_in_the_files_where_they_stand() -> None:
    """Equal work is in the file of the table that ran it."""
    made = records_of("fedpub-2", SCORES, "--dataset", "cora", "--clients", "10")
    elsewhere = [
        replace(record, source=replace(record.cell, protocol="all-methods"))
        if record.cell.method == "local" and record.cell.seed
        else record
        for record in made
    ]
    entries = entries_of(fedpub_2=elsewhere)
    for method, files in (("Local", ["all-methods", "fedpub-2"]), ("FedAvg", ["fedpub-2"]), ("FedPer", [])):
        entry = entry_of(entries, "FED-PUB", "2", "Cora", "metis", "10", method)
        assert figure_line(entry, entry.to_dict())["files"] == files


def test_a_value_that_several_figures_have_stands_once() -> None:
    entries = entries_of(fedpub_2=records_of("fedpub-2", SCORES, "--dataset", "cora", "--clients", "10"))
    lines = [figure_line(entry, entry.to_dict()) for entry in entries]
    columns = columns_of(lines)
    assert len(columns["paper"][0]) < len(lines) == len(columns["paper"][1])
    for name, (values, places) in columns.items():
        assert len(values) == len({json.dumps(value) for value in values})
        assert [values[place] for place in places] == [line[name] for line in lines]
    assert columns_of([]) == {}
