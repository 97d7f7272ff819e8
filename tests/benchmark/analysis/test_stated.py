"""What papers state of settings names papers, settings and options that exist."""

from __future__ import annotations

import pytest

from fedsub.benchmark.analysis.causes import Stated, stated
from fedsub.benchmark.analysis.published import figures
from fedsub.benchmark.spec import catalog
from fedsub.benchmark.spec.settings import SETTINGS


def test_every_section_is_a_paper_with_printed_figures() -> None:
    papers = {figure.paper for group in figures().values() for figure in group}
    assert set(stated()) <= papers


@pytest.mark.parametrize("paper", sorted(stated()))
def test_every_line_is_a_setting_or_an_option_of_a_method(paper: str) -> None:
    for name, said in stated()[paper].items():
        method, colon, option = name.rpartition(": ")
        assert option in ({row[0] for row in catalog.explain(method)["options"]} if colon else SETTINGS), name
        assert said != Stated(), name
