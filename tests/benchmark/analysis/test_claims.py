from pathlib import Path

import pytest

from fedsub.benchmark.analysis.claims import ADVICE, Claim, Contrast, load_claims
from fedsub.benchmark.analysis.findings import find
from fedsub.benchmark.analysis.paired import EQUAL, HIGHER
from fedsub.datasets.errors import UserError

TEXT = """
[[claim]]
paper = "FED-PUB"
place = "Table 7"
says = "It is best."
table = "fedpub-7"
method = "fedpub"
is = "higher"
against = ["local", {{ method = "fedavg" }}]
{more}
"""


def read(folder: Path, text: str) -> Claim:
    """Return the single claim of a file with this text."""
    path = folder / "claims.toml"
    path.write_text(text)
    (claim,) = load_claims(path)
    return claim


def test_the_papers_claims_name_what_exists() -> None:
    claims = load_claims()
    assert 30 <= len(claims) <= 60
    assert [*dict.fromkeys(claim.paper for claim in claims)] == ["FED-PUB", "FedSpray", "FedCog", "FedStruct"]
    assert len({claim.says for claim in claims}) == len(claims)
    for claim in claims:
        assert claim.place
        assert all(contrast.columns for contrast in claim.contrasts)
    advice = load_claims(ADVICE)
    assert len(advice) == 5
    assert all(contrast.columns for claim in advice for contrast in claim.contrasts)


def margin_left(contrast: Contrast, difference: float) -> float:
    """Return by how much a printed difference supports the claim."""
    if contrast.direction == EQUAL:
        return contrast.margin - abs(difference)
    return (difference if contrast.direction == HIGHER else -difference) - contrast.margin


def test_the_papers_own_figures_bear_their_claims_out() -> None:
    """Guards against claims with the wrong direction or the wrong cells."""
    tested = 0
    for finding in find(load_claims(), {}):
        for part in finding.parts:
            contrast, says = part.contrast, finding.claim.says
            printed = ([each for each in column.printed if each is not None] for column in part.columns)
            shown = [[margin_left(contrast, each) for each in values] for values in printed if values]
            tested += bool(shown)
            if shown and contrast.rule == "on average":
                assert sum(map(sum, shown)) > 0, says
            else:
                assert all(min(values) > 0 for values in shown), says
    assert tested > 25


def test_columns_are_the_cells_of_the_grid_with_all_that_they_are_compared_with(tmp_path: Path) -> None:
    (column,) = read(tmp_path, TEXT.format(more="")).contrasts[0].columns
    assert (column.ours.table, column.ours.metric) == ("fedpub-7", "accuracy")
    assert column.ours.point["dataset"] == "citeseer"
    assert [side.point["method"] for side in column.theirs] == ["local", "fedavg"]
    text = TEXT.format(more="").replace('"fedpub-7"', '["fedpub-6", "fedpub-8"]')
    assert len(read(tmp_path, text).contrasts[0].columns) == 6
    assert len(read(tmp_path, f'{text}only = {{ dataset = ["cora"] }}').contrasts[0].columns) == 2


def test_another_axis_table_or_a_value_may_stand_on_the_other_side(tmp_path: Path) -> None:
    text = TEXT.format(more="only = { clients = [20], dataset = ['cora'] }").replace("fedpub-7", "fedpub-2")
    sides = '[{ clients = 5 }, { table = "fedpub-8", clients = 3 }, { value = 80 }]'
    (column,) = read(tmp_path, text.replace('["local", { method = "fedavg" }]', sides)).contrasts[0].columns
    fewer, other, value = column.theirs
    assert (fewer.point["clients"], other.table, value.value) == (5, "fedpub-8", 80.0)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fedpub-7", "fedpub-77", "unknown table 'fedpub-77'"),
        ('method = "fedpub"', 'method = "fedpup"', "unknown method in fedpub-7 'fedpup'"),
        ('"higher"', '"better"', "unknown direction 'better'"),
        ('"Table 7"', "7", "Expected `str`, got `int` - at `$.place`"),
        ('{ method = "fedavg" }', '{ network = "gcn" }', "unknown key of a side 'network'"),
        ('{ method = "fedavg" }]', '"fedavg"]\ncontrast = []', "contrast is empty"),
        ('{ method = "fedavg" }]', '"fedavg"]\nwithout = [{ graph = "cora" }]', "unknown axis"),
        ('{ method = "fedavg" }]', '"fedavg"]\nwithout = [{ dataset = "core" }]', "matches no cell"),
        ('{ method = "fedavg" }]', '"fedavg"]\ncolumns = "some"', "Invalid enum value 'some'"),
    ],
)
def test_what_does_not_exist_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = TEXT.format(more="")
    assert old in text
    with pytest.raises(UserError, match=r"claim 1 \(It is best.\)") as caught:
        read(tmp_path, text.replace(old, new))
    assert message in str(caught.value)


def test_places_that_the_text_excepts_are_left_out(tmp_path: Path) -> None:
    text = TEXT.format(more='without = [{ dataset = "cora", clients = 5 }, { dataset = "pubmed" }]')
    places = [
        (column.ours.point["dataset"], column.ours.point["clients"])
        for column in read(tmp_path, text.replace("fedpub-7", "fedpub-2")).contrasts[0].columns
    ]
    assert ("cora", 10) in places
    assert ("cora", 5) not in places
    assert "pubmed" not in {graph for graph, _ in places}


def test_a_claim_of_several_contrasts_has_the_columns_of_each(tmp_path: Path) -> None:
    sided = TEXT.format(more="").replace('is = "higher"\nagainst = ["local", { method = "fedavg" }]\n', "")
    blocks = """
[[claim.contrast]]
is = "higher"
against = ["local"]

[[claim.contrast]]
table = "fedpub-8"
is = "equal"
margin = 2
against = ["fedavg"]
"""
    claim = read(tmp_path, sided + blocks)
    first, second = claim.contrasts
    assert (first.direction, first.table, first.margin) == (HIGHER, ("fedpub-7",), 0.0)
    assert (second.direction, second.table, second.margin) == (EQUAL, ("fedpub-8",), 2.0)
    with pytest.raises(UserError, match="missing required field `is`"):
        read(tmp_path, sided + blocks.replace('is = "equal"\n', ""))
