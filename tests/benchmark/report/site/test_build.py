"""The site of small results folders, without a browser."""

import json
import re
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.latest import add_verified
from fedsub.benchmark.report.pages import write_report
from fedsub.benchmark.report.site.charts import Line, Point, lines, scatter, strip
from fedsub.benchmark.report.site.data import block_address
from tests.benchmark.fakes import make_cell, make_record

HOSTILE = "</script><img src=x onerror=\"document.title='taken'\">"
"""A hostile text that a record's names may contain."""


def _pages(results: Path, name: str) -> Any:
    """Content of a data file."""
    text = (results / "site" / "data" / f"{name}.js").read_text("utf-8")
    return json.loads(text.partition("{},")[2].removesuffix(");\n"))


def test_a_site_of_records_without_printed_figures(tmp_path: Path) -> None:
    """Texts of records and verifiers are escaped; existing documentation is kept, linked and searchable."""
    docs = tmp_path / "site" / "docs"
    docs.mkdir(parents=True)
    (docs / "index.html").write_text("docs")
    (docs / "scope.html").write_text("scope")
    stale = tmp_path / "site" / "data" / "stale.js"
    stale.parent.mkdir()
    stale.write_text("of an earlier report")
    for label in ("mine", HOSTILE):
        for seed in range(3):
            cell = make_cell(protocol="quick", label=label, dataset=label, clients=3, seed=seed)
            record = make_record(cell, privacy=label, partition_statistics={"nodes_max": None})
            Records(tmp_path).append(record)
    own = [record for record in Records(tmp_path).every() if record.cell.label == "mine"]
    for verified in (own[:2], own[:1]):
        add_verified(tmp_path, "Ada <b>", verified)
    index = write_report(tmp_path)[-1].read_text("utf-8")
    said = ("leaderboard/mine/", "&lt;img", 'href="docs/index.html"')
    assert [text for text in said if text not in index] == []
    names = {path.stem for path in (tmp_path / "site" / "data").glob("*.js")}
    assert names & {"arena", "decide"} == {"decide"}
    pages = [html for name in names - {"search"} for _, html in _pages(tmp_path, name).values()]
    assert not [html for html in (index, *pages) if "<img" in html]
    assert "generated" not in _pages(tmp_path, "graph")["graph"][1]
    # Methods that break privacy are on no front and in no drawing.
    assert not [html for html in pages if '<circle class="dot' in html]
    assert any(f"Ada &lt;b&gt; (2 of {len(own)})" in html for html in pages)
    assert (stale.exists(), (docs / "index.html").read_text()) == (False, "docs")
    # A search for a topic out of scope finds the page on the scope.
    guides = {page[3]: page[2] for page in _pages(tmp_path, "search")["pages"] if page[0] == "guide"}
    assert set(guides) == {"docs/index.html", "docs/scope.html"}
    assert "regression" in guides["docs/scope.html"].split()


def test_an_arena_is_shown_and_is_a_finding_where_it_has_enough_graphs(tmp_path: Path) -> None:
    final = [make_cell(protocol="trials", method="fedsgd", label="fedsgd", seed=seed) for seed in range(2)]
    for cell in (make_cell(protocol="quick"), *final):
        Records(tmp_path).append(make_record(cell, 80.0 + 4 * cell.seed))
    row: dict[str, Any] = {"method": "fedsgd", "rank": [1.5, 1.0, 2.25], "gain": [2.0, None, None]}
    row |= {"over_local": [0.9, 0.8, 1.0], "over_fedavg": None, "tuning": 1.0, "default_rank": None}
    row |= {"megabytes": 160.8, "seconds": 0.115, "privacy": "", "wins": 2, "replaced": 7, "trials": 12}
    row |= {"planned": 20, "improvability": 3.21, "places": [1, 3], "every_epoch": True}
    gain = {"method": "FED-PUB", "over": "Local", "printed": 3.0, "reproduced": 2.6, "tuned": None}
    entry = {"dataset": "cora", "partition": "metis", "clients": 5, "method": "fedsgd", "trials_left_out": 1}
    entry |= {"settings": {"learning_rate": "0.02"}, "default": [60.0, None], "tuned": [80.0, 84.0]}
    entry["chosen"] = "fedsgd[mu=0.5,own_rate=2]"
    # The last record has been removed since.
    entry["records"] = [*(cell.key for cell in final), "0123456789ab-2"]
    behind = {**entry, "method": "fedavg", "default": [], "tuned": [None], "settings": {}, "records": []}
    behind["chosen"] = "fedavg"
    arena: dict[str, Any] = {"ranking": [row], "graphs": 3, "trials": 20, "unranked": {"fedavg": 0.5}}
    arena |= {"trials_run": 12, "trials_planned": 20, "complete": 0, "kendall_trials": -0.5, "hours": 2.0}
    arena |= {"gains": [{**gain, "figures": 44}], "not_planned": ["FedOpt"], "tied": [["fedsgd"] * 2]}
    arena |= {"friedman_p": 0.01, "budget": "a cap", "critical_difference": 1.25}
    gone = {**entry, "dataset": "citeseer", "records": ["0123456789ab-2"]}
    arena |= {"entries": [behind, entry, gone], "advice": [{"says": "Tune first.", "verdict": "holds"}]}
    for smaller in ([], ["2 of 24 blocks"]):
        (tmp_path / "arena.json").write_text(json.dumps({**arena, "smaller": smaller}))
        index = write_report(tmp_path)[-1].read_text("utf-8")
        shown = (tmp_path / "site" / "data" / "arena.js").read_text("utf-8")
        said = ["FED-PUB: 2.6 at the end", "holds</span>: Tune first.", "1.00 to 2.25", "1–3", ">7<"]
        said += ["Cora, METIS, 5 clients", "up to 20 trials within a cap", "FedOpt.", ">12 of 20<"]
        said += ["Of all 20 trials 12 ran, all of them in 0 of the 3 searches", "epoch by FedSGD,"]
        said += ["2.0 core-hours", ">44<", ">3.2<", "failed or are missing: FedAvg.", "among all 1 methods"]
        said += ["difference, 1.25", "<title>FedSGD: 1.50</title>", "M334.0 22.5V32.5"]
        assert [text for text in said if text not in shown] == []
        assert "CiteSeer" not in shown
        (tuned,) = (html for _, html in _pages(tmp_path, "leaderboard.cora.metis.5.tuned").values())
        assert tuned.index("up to 20 trials within a cap") < tuned.index('class="rank"')
        _, _, found = tuned.partition("<h2>Default and tuned</h2>")
        settings = ("mu 0.5, own rate 2, learning rate 0.02<", "FedAvg", ">the default<")
        places = [found.index(each) for each in ("60.00</td>", "82.0 ± 2.8", *settings)]
        assert places == sorted(places)
        assert (
            "mean rank 1.50 of 1 methods and variants"
            in _pages(tmp_path, "method.fedsgd")["method/fedsgd"][1]
        )
        assert ("best mean rank of 1 methods and variants over 3 graphs: 1.50" in index) is (smaller == [])
        overview = (tmp_path / "README.md").read_text("utf-8")
        assert ("1.50 [1.00, 2.25]" in overview) is (smaller == [])
        linked = {link for link in re.findall(r"\]\(([^)]*)\)", overview) if not (tmp_path / link).exists()}
        assert linked == {"arena.md"}  # Only its data are written here.


def test_a_dial_and_named_clients_have_views(tmp_path: Path) -> None:
    held: dict[str, Any] = {"by_client": {"test": [None, *range(13)]}}
    held["extras"] = {"client_names": [*map(str, range(14))]}
    for across, method in product((0, 0.4, 0.8), ("local", "fedgcn")):
        cell = make_cell(protocol="natural", dataset=f"community[across={across}]", method=method)
        held["partition_statistics"] = {"intra_share": 1 - across}
        Records(tmp_path).append(make_record(cell, 50 + 50 * across * (method == "fedgcn"), **held))
    write_report(tmp_path)
    assert "generated" in _pages(tmp_path, "graph")["graph"][1]
    drawn = _pages(tmp_path, "map.natural")["map/natural"][1]
    assert 'aria-label="FedGCN +40.0 at the end"><path class="zero" d="M3.0 53.0 L117.0 53.0"/>' in drawn
    (board,) = _pages(tmp_path, "leaderboard.community-across-0.metis.5.natural").values()
    assert "The first 12 clients; 1 more is left out" in board[1]
    assert '<td data-v="1.0">+1.00 (3)</td>' in _pages(tmp_path, "edges")["edges"][1]


def test_an_interval_that_leaves_its_line_ends_in_an_arrow() -> None:
    for tips, interval in enumerate([(-1.0, 2.0), (-1.0, 9.0), (-9.0, 9.0)]):
        assert strip(interval, 0.5, 3.0).count("tip") == tips


def test_at_most_six_names_stand_in_a_drawing() -> None:
    points = [Point(f"m{place}", float(place), float(place), "", True) for place in range(9)]
    drawn = scatter(points, "MB", "score", "said")
    assert drawn.count('class="best"') == 6
    assert drawn.count("<circle") == 9
    curves = lines([Line(f"m{place}", [(0, 1.0), (5, 2.0)]) for place in range(9)], "x", "y", "said")
    assert curves.count('class="line ') == 6
    # Names do not overlap.
    drawn = lines([Line(name, [(0, 1.0), (5, 2.0)]) for name in "abc"], "x", "y", "said")
    ends = [part.split('y="')[1].split('"')[0] for part in drawn.split("<text x=")[-3:]]
    assert min(abs(float(a) - float(b)) for a, b in pairwise(ends)) >= 12


def test_graphs_of_users_whose_names_differ_in_case_or_punctuation_have_pages_of_their_own() -> None:
    blocks = [(name, "louvain", 3) for name in ("cora", "Cora", "my_graph", "my-graph", "my.graph")]
    addresses = [block_address("leaderboard", block, "default") for block in blocks]
    assert len({*addresses}) == len(blocks)
    assert addresses[0] == "leaderboard/cora/louvain/3/default"
