from __future__ import annotations

from dataclasses import replace

from benchmark.pages.site.figures import SHARED, figure_line, share_texts
from tests.benchmark.pages.test_reproduction import SCORES, entries_of, entry_of, records_of


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
        assert figure_line(entry, entry.to_dict({}))["files"] == files


def test_a_text_that_several_figures_share_stands_once() -> None:
    entries = entries_of(fedpub_2=records_of("fedpub-2", SCORES, "--dataset", "cora", "--clients", "10"))
    lines = [figure_line(entry, entry.to_dict({})) for entry in entries]
    short, texts = share_texts(lines)
    assert len(texts) == len({*texts}) < len(lines)
    assert [{**line, **{name: texts[line[name]] for name in SHARED}} for line in short] == lines
