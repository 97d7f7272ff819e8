import html

from hypothesis import example, given
from hypothesis import strategies as st

from fedsub.benchmark.report.wording import markdown_table

TABLES = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(st.text(), min_size=width, max_size=width), min_size=1, max_size=5)
)


def test_cells_stay_as_they_were_written() -> None:
    assert markdown_table(["method", "share"], [["a", "1.50"], ["longer", "1e3"], ["", "-0"]]) == (
        "| method | share |\n| --- | ---: |\n| a | 1.50 |\n| longer | 1e3 |\n|  | -0 |"
    )


@given(TABLES)
@example([["", ""], ["", "\x01"]])
@example([["![note](http://a.example/b.png)"]])
def test_whatever_a_cell_holds_a_table_keeps_its_shape(lines: list[list[str]]) -> None:
    head, *rows = lines
    written = markdown_table(head, rows).split("\n")
    assert len(written) == len(rows) + 2
    for line, cells in zip([written[0], *written[2:]], lines, strict=True):
        assert line.startswith("| ")
        assert line.endswith(" |")
        assert [html.unescape(cell.strip()) for cell in line[1:-1].split("|")] == [
            " ".join("".join(letter if letter.isprintable() else " " for letter in cell).split())
            for cell in cells
        ]
    assert "<" not in "".join(written)
    assert "](" not in "".join(written)
